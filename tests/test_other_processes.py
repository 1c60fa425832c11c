"""A process that pyfast starts ends with the process that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems do not tell")

_SLEEPS = """
import os, time
from pyfast.utils.processes import end_with_parent
def main():
    end_with_parent()
    print(os.getpid(), flush=True)
    time.sleep(60)
"""
_STARTS = """
import os, signal, sys
from subprocess import DEVNULL, PIPE
from pyfast.utils.processes import process_of
with process_of("sleeps", stdin=DEVNULL, stdout=PIPE) as process:
    print(process.stdout.readline().decode(), flush=True)
    if sys.argv[1] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("end", "code"), [("killed", -signal.SIGKILL), ("returns", 0)])
def test_it_ends_with_the_one_that_started_it(tmp_path: Path, end: str, code: int) -> None:
    (tmp_path / "sleeps.py").write_text(_SLEEPS)
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    command = [sys.executable, "-c", _STARTS, end]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    deadline = time.monotonic() + 20
    while Path(f"/proc/{int(done.stdout)}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_it_does_not_begin_if_that_one_has_ended() -> None:
    code = "from pyfast.utils.processes import end_with_parent; end_with_parent(); print('goes on')"
    environment = {**os.environ, "_PYFAST_PARENT": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=False)
    assert done.returncode == 1 and not done.stdout
