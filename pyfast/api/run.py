"""`pyfast.Run`: the records, the progress and the prompts of a run."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import overload

from pyfast.engine import Record, Status, Summary, read_status
from pyfast.engine.journal.journal_reader import calls_of
from pyfast.engine.journal.prompt_store import LLMCall
from pyfast.engine.run_folder import ANSWERS, JOURNAL
from pyfast.engine.status import check_folder, status_of
from pyfast.engine.traces import TRACES, Traces
from pyfast.errors import InputError


class Run:
    """A run: the answers to a set of questions. `pyfast.answer` returns a run, and `Run(path)` opens the folder
    of a run.

    Example:
        >>> import pyfast
        >>> run = pyfast.Run("RUN")
        >>> run.status.states
        {'answered': 14}
        >>> run.records[0].answer
        'Christiaan Huygens'
    """

    def __init__(self, path: str | Path) -> None:
        """Open the folder of a run, even while another process works on it.

        Args:
            path: The folder.

        Raises:
            InputError: The folder has no run.
        """
        self.path: Path | None = Path(path)
        """The folder of the run. None: the run is in memory"""
        self.session: Summary | None = None
        """The counts of the session that returned this run: how its questions ended, its LLM calls, tokens
        and seconds. None: the run was only opened from its folder
        """
        self._records: Sequence[Record] = ()
        self._lines: tuple[tuple[int, int, int], _Lines] | None = None
        self._status: Status | None = None
        check_folder(self.path)

    @classmethod
    def finished(cls, path: Path | None, total: int, session: Summary, records: Sequence[Record]) -> Run:
        """Make the run that `pyfast.answer` returns."""
        run = cls.__new__(cls)
        run.path, run.session = path, session
        run._records, run._lines = records, None
        run._status = status_of(session, total) if path is None else None
        return run

    @property
    def records(self) -> Sequence[Record]:
        """The records (results) of the questions that have ended, in the order of the questions. If the run
        has a folder, they are read from it.

        A record reads its `evidence` and its `trace` from the disk when you first access them.

        Raises:
            InputError: The folder's answers cannot be read.
        """
        if self.path is None:
            return self._records
        try:
            file = (self.path / ANSWERS).stat()
        except OSError as error:
            raise InputError(f"{self.path / ANSWERS}: cannot be read: {error.strerror}") from None
        state = file.st_ino, file.st_size, file.st_mtime_ns
        if self._lines is None or self._lines[0] != state:  # Another session or process has written more.
            self._lines = state, _Lines(self.path / ANSWERS)
        return self._lines[1]

    @property
    def status(self) -> Status:
        """The progress of the run: states of questions, failures by reason, LLM calls, tokens, times by stage."""
        if self._status is not None:
            return self._status
        assert self.path is not None
        return read_status(self.path)

    def prompts(self, id: str) -> list[LLMCall]:
        """Return the LLM calls of one question, each with its prompt and its reply.

        Args:
            id: The id of the question.

        Returns:
            The calls in the order in which they ended. `messages` is None if the run does not store prompts.

        Raises:
            InputError: The run is in memory, no question with this id has ended, or the run's journal is
                damaged.

        Example:
            >>> import pyfast
            >>> for call in pyfast.Run("RUN").prompts("q1"):
            ...     print(call.prompt, call.messages, call.completion)
        """
        if self.path is None:
            raise InputError("a run in memory keeps no prompts; give pyfast.answer a folder as `run`")
        return calls_of(self.path / JOURNAL, id)

    def __repr__(self) -> str:
        where = "in memory" if self.path is None else repr(str(self.path))
        return f"<pyfast.Run {where}, {self.status.ended} of {self.status.questions} questions>"


def folder_of(run: Run | str | Path) -> Path | None:
    """Return the folder of a run. None: the run is in memory."""
    return run.path if isinstance(run, Run) else Path(run)


class _Lines(Sequence[Record]):
    """The records of a file, read one by one. Memory holds only the position of each line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._traces = Traces(path.with_name(TRACES))
        self._starts = array("Q", [0])
        with path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    self._starts.append(self._starts[-1] + len(line))

    def __len__(self) -> int:
        return len(self._starts) - 1

    @overload
    def __getitem__(self, place: int) -> Record: ...

    @overload
    def __getitem__(self, place: slice) -> list[Record]: ...

    def __getitem__(self, place: int | slice) -> Record | list[Record]:
        if not isinstance(place, slice):
            number = range(len(self))[place]
            return next(self._read([number]))
        return list(self._read(range(*place.indices(len(self)))))

    def __iter__(self) -> Iterator[Record]:
        return self._read(range(len(self)))

    def _read(self, numbers: Iterable[int]) -> Iterator[Record]:
        with self._path.open("rb") as file:
            for number in numbers:
                file.seek(self._starts[number])
                yield self._record(number, file.readline())

    def _record(self, number: int, line: bytes) -> Record:
        try:
            return Record.read(line, partial(self._traces.line, number))
        except InputError as error:
            raise InputError(f"{self._path}, line {number + 1}: {error}") from None
