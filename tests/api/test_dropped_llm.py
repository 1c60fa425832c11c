"""A model that a script passes inline and never names again."""

import subprocess
import sys
from pathlib import Path

import pytest
from hostile_server import hostile

SCRIPT = """
import gc, sys
import pyfast

for number in range(2):
    llm = pyfast.open_llm("openai:m@" + sys.argv[1])
    pyfast.answer(["Who?"], system="direct", run=f"RUN{number}", llm=llm)
    del llm
    if sys.argv[2] == "collected":
        gc.collect()
"""


@pytest.mark.parametrize("when", ["collected", "at the end"])
def test_a_dropped_llm_closes_its_connections(when: str, tmp_path: Path) -> None:
    with hostile() as url:
        command = [sys.executable, "-c", SCRIPT, url, when]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "nclosed" not in done.stderr, done.stderr
