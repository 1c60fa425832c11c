"""Count the cores of this process, start another Python process that runs a function of pyfast, and remove the
temporary files of killed processes. pyfast does not use multiprocessing, because its processes would import the
user's script."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import Popen
from typing import IO

_PARENT = "_PYFAST_PARENT"
_PR_SET_PDEATHSIG = 1  # from Linux's sys/prctl.h


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def process_of(
    module: str, *arguments: str, stdin: IO[bytes] | int, stdout: IO[bytes] | int, stderr: IO[bytes] | None = None
) -> Iterator[Popen[bytes]]:
    """Start a process that calls `main()` of a module, and yield it. At the end of the `with` block, the process
    is killed if it is still running.

    Args:
        module: The name of the module. Its `main` should first call `end_with_parent`.
        *arguments: The arguments, which `main` finds in `sys.argv[1:]`.
        stdin: The file from which the process reads, or `subprocess.PIPE`.
        stdout: The file into which the process writes, or `subprocess.PIPE`.
        stderr: The file for its error messages. None: that of this process.
    """
    command = [sys.executable, "-c", f"from {module} import main; main()", *arguments]
    # The new process imports from the same places as this one.
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
    # The new process has its own session, so that Ctrl-C in a terminal reaches only this process, which then ends
    # the new one. Pipes are unbuffered, because closing a buffered pipe to a killed process would raise
    # BrokenPipeError.
    own = {**os.environ, "PYTHONPATH": paths, "PYTHONSAFEPATH": "1", "PYFAST_THREADS": "1"}
    own[_PARENT] = str(os.getpid())
    with Popen(command, 0, None, stdin, stdout, stderr, env=own, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def end_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends, for example because that thread's
    process was killed. This works only on Linux."""
    with suppress(AttributeError):  # Only Linux has this function.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(os.environ[_PARENT]):  # The other process has already ended.
        sys.exit(1)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Create a folder in the folder for temporary files (`TMPDIR`) for a `with` block, and remove such folders
    that killed processes have left. Each process locks its own folders, and the operating system releases the
    lock when the process ends."""
    for left in Path(tempfile.gettempdir()).glob("pyfast-scratch-*"):
        with suppress(OSError), _opened(left) as file:  # It may be in use, or another user's.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if any(left.iterdir()):  # Another process may not have locked its new, empty folder yet.
                shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix="pyfast-scratch-") as name, _opened(Path(name)) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield Path(name)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield file
    finally:
        os.close(file)
