"""`pyfast` and scripts as real processes, which can be killed at any moment, again and again.

They are forked from a process that has the modules loaded: a start takes milliseconds, not seconds.
"""

import fcntl
import multiprocessing
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory

_SERVER = multiprocessing.get_context("forkserver")
_ROOMS = ("commands.cli", "llm.openai", "llm.instant", "systems.n2n", "systems.direct", "evaluation")
_ROOMS += ("api.answer", "api.evaluation", "api.index")
_LOADED = [*(f"pyfast.{room}" for room in _ROOMS), "rich.live"]
if find_spec("fastapi") and find_spec("uvicorn"):
    _LOADED.append("pyfast.server.http_server")
_SERVER.set_forkserver_preload(_LOADED)
PATIENCE_S = 120.0


def load_first(*modules: str) -> None:
    """Have the processes from now on begin with these modules loaded too."""
    forkserver._forkserver._stop()  # type: ignore[attr-defined]  # it loads modules only when it starts
    _SERVER.set_forkserver_preload([*_LOADED, *modules])


def _begin(told: tuple[Path, Path]) -> None:
    """Streams and signals as those of a process that a shell starts."""
    for stream, path in enumerate(told, 1):  # appended: it may be the same for both
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the fork server ignores it
    for number in (signal.SIGHUP, signal.SIGQUIT):  # ignored where the tests run under nohup, or in the background
        signal.signal(number, signal.SIG_DFL)


def _main(arguments: list[str], told: tuple[Path, Path], prepare: Callable[[], None] | None) -> None:
    from pyfast.commands.cli import main

    _begin(told)
    sys.argv = ["pyfast", *arguments]
    if prepare is not None:
        prepare()
    main()


def _script(code: str, arguments: list[str], told: tuple[Path, Path], environment: dict[str, str]) -> None:
    _begin(told)
    os.environ.update(environment)
    sys.argv = ["-c", *arguments]
    exec(compile(code, "<script>", "exec"), {"__name__": "__main__"})  # noqa: S102


def _place(cwd: Path | None, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    if cwd is not None:
        os.chdir(cwd)


def pyfast(
    *arguments: object, cwd: Path | None = None, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A command from its beginning to its end."""
    given = [*map(str, arguments)]
    prepare = partial(_place, cwd or Path.cwd(), environment or {})
    return _completed(given, lambda told: _SERVER.Process(target=_main, args=(given, told, prepare), daemon=True))


def _at_terminal(cwd: Path) -> None:
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)
    _place(cwd, {"TERM": "xterm"})


def at_terminal(width: int, *arguments: object, cwd: Path) -> tuple[int, str, str]:
    """A command whose standard output is a terminal of so many columns. Returns its exit status, what it printed
    there, without colours, and what it printed on stderr."""
    ours, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    told = b""
    with NamedTemporaryFile() as errors:
        places = Path(os.ttyname(terminal)), Path(errors.name)
        given = ([*map(str, arguments)], places, partial(_at_terminal, cwd))
        process: BaseProcess = _SERVER.Process(target=_main, args=given, daemon=True)
        process.start()
        ready = select.poll()  # `select` fails for descriptors above 1,023.
        ready.register(ours, select.POLLIN)
        while process.is_alive() or ready.poll(0):
            if ready.poll(10):
                told += os.read(ours, 1 << 16)
        os.close(ours)
        os.close(terminal)
        assert process.exitcode is not None
        return process.exitcode, re.sub(r"\x1b\[[\d;]*m", "", told.decode()), Path(errors.name).read_text()


def script(
    code: str, *arguments: object, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`python -c CODE ARGUMENTS` from its beginning to its end."""
    given = [*map(str, arguments)]
    more = environment or {}
    return _completed(
        given, lambda told: _SERVER.Process(target=_script, args=(code, given, told, more), daemon=True)
    )


def _completed(
    given: list[str], made: Callable[[tuple[Path, Path]], BaseProcess]
) -> subprocess.CompletedProcess[str]:
    with TemporaryDirectory() as folder:
        told = Path(folder, "out"), Path(folder, "err")
        process = made(told)
        process.start()
        process.join(PATIENCE_S)
        process.kill()
        process.join()
        assert process.exitcode is not None
        return subprocess.CompletedProcess(given, process.exitcode, *(path.read_text() for path in told))


class Session:
    """One process that works on a run."""

    def __init__(
        self,
        folder: Path,
        *arguments: object,
        prepare: Callable[[], None] | None = None,
        command: str | None = "answer",
    ) -> None:
        """`command` None: the arguments are the whole command line."""
        self.folder = folder
        self._file = NamedTemporaryFile()  # noqa: SIM115
        self._told = Path(self._file.name)
        given = (
            [*map(str, arguments)] if command is None else [command, *map(str, arguments), "--run", str(folder)]
        )
        self.process: BaseProcess = _SERVER.Process(
            target=_main, args=(given, (self._told, self._told), prepare), daemon=True
        )
        self.process.start()

    @property
    def told(self) -> str:
        """What it has printed."""
        return self._told.read_text()

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        """Kill it, where it has not ended."""
        self.process.kill()
        self.process.join(PATIENCE_S)

    def ended(self, patience_s: float = PATIENCE_S) -> int:
        """Wait for its end: the exit status."""
        self.process.join(patience_s)
        if self.process.exitcode is None:
            self.process.kill()
            raise AssertionError(f"it did not end within {patience_s:g} s: {self.told}")
        return self.process.exitcode

    def until(self, reached: Callable[[], bool]) -> None:
        """Wait until something is so, or it has ended."""
        deadline = time.monotonic() + PATIENCE_S
        while not reached() and self.process.is_alive():
            assert time.monotonic() < deadline, self.told
            time.sleep(0.005)

    def lines(self) -> int:
        """How many answers are written."""
        path = self.folder / "answers.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0
