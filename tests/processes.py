"""`pyfast answer` as real processes, which can be killed at any moment, again and again.

They are forked from a process that has the modules loaded: a start takes milliseconds, not seconds.
"""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import NamedTemporaryFile

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload([f"pyfast.{room}" for room in ("cli", "llm.openai", "systems", "evaluation")])
PATIENCE_S = 120.0


def _main(arguments: list[str], told: Path, prepare: Callable[[], None] | None) -> None:
    from pyfast.cli import main

    file = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the fork server ignores it
    sys.argv = ["pyfast", *arguments]
    if prepare is not None:
        prepare()
    main()


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
        self.process: BaseProcess = _SERVER.Process(target=_main, args=(given, self._told, prepare), daemon=True)
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

    def ended(self) -> int:
        """Wait for its end: the exit status."""
        self.process.join(PATIENCE_S)
        if self.process.exitcode is None:
            self.process.kill()
            raise AssertionError(f"it did not end within {PATIENCE_S:g} s: {self.told}")
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
