"""Memory does not grow with the number of questions, in a real process with its journal."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyfast.corpus import read
from pyfast.engine import read_status
from pyfast.retrieval import build_index

pytestmark = pytest.mark.slow(suite="crashes")

FEW = 1_000
MANY = int(os.environ.get("PYFAST_MANY_QUESTIONS", "20000"))

PEAK = """
import atexit, re
from pathlib import Path
from pyfast.commands.cli import main
atexit.register(lambda: print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]))
main()
"""


def peak_mb(folder: Path, system: str, number: int) -> float:
    """The most memory that a run of so many questions had at once."""
    questions, run = folder / f"{number}.jsonl", folder / f"{system}-{number}"
    with questions.open("w") as file:
        file.writelines(
            f'{{"id": "{i}", "question": "Which planet does moon {i} circle?"}}\n' for i in range(number)
        )
    command = [sys.executable, "-c", PEAK, "answer", str(questions), "--system", system, "--llm", "instant"]
    command += ["--index", str(folder / "index"), "--run", str(run)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert read_status(run).states == {"answered": number}
    told, peak = done.stdout.splitlines()
    print(f"{int(peak) / 1024:.1f} MB: {told}")
    return int(peak) / 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
@pytest.mark.parametrize("system", ["direct", "rag"])
def test_memory_is_flat(examples: Path, tmp_path: Path, system: str) -> None:
    build_index(read([examples / "corpus"]), tmp_path / "index")
    few, many = (peak_mb(tmp_path, system, number) for number in (FEW, MANY))
    assert many < 1.1 * few
