"""Which lines of the kernels the core tests reach over the emulator: gcov's own count.

    python tests/cuda/reached_lines.py        needs g++ and gcov; builds and runs for some minutes

Prints, for each source, how many lines are reached, and the numbers of those that are not.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def counted(folder: Path) -> dict[str, dict[int, int]]:
    """Of each source in csrc/cuda, how often each line ran."""
    notes, counts = folder / "coverage-ops", defaultdict[str, dict[int, int]](dict)
    for data in folder.rglob("*.gcda"):
        if data.parent != notes and (notes / data.name).with_suffix(".gcno").exists():
            shutil.move(data, notes / data.name)  # written where it was compiled, before the folder was renamed
    for data in notes.glob("*.gcda"):
        said = subprocess.run(
            ["gcov", "--json-format", "--stdout", data], capture_output=True, check=True, cwd=ROOT
        )
        for file in json.loads(said.stdout)["files"]:
            path = (ROOT / file["file"]).resolve()
            if path.parent == ROOT / "csrc" / "cuda":
                lines = counts[path.name]
                for line in file["lines"]:
                    lines[line["line_number"]] = lines.get(line["line_number"], 0) + line["count"]
    return counts


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        chosen = ["-m", "not slow", "-k", "emulated or tiles", "--ignore", HERE / "test_device.py", HERE]
        command = [sys.executable, "-m", "pytest", "-q", f"--basetemp={folder}", *chosen]
        environment = os.environ | {"PYFAST_EMULATED_BUILD": "coverage"}
        done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
        counts = counted(folder)
    reached = total = 0
    for source, lines in sorted(counts.items()):
        missed = sorted(number for number, count in lines.items() if not count)
        reached, total = reached + len(lines) - len(missed), total + len(lines)
        print(f"{source:20} {len(lines):4} lines, not reached: {' '.join(map(str, missed)) or 'none'}")
    print(f"reached: {reached} of {total} lines, {reached / max(total, 1):.1%}")
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
