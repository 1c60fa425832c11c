"""`pyfast.verify`: check that a run or an index is complete and undamaged."""

from __future__ import annotations

import contextlib
import errno
import math
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pyfast.corpus.encode import other_than_digest
from pyfast.engine.configuration import CONFIGURATION, ENGINE, FORMAT, Configuration, read_configuration
from pyfast.engine.journal.journal import open_to_read, sound
from pyfast.engine.journal.ledger import ledger_of
from pyfast.engine.journal.prompt_store import KeptPrompts
from pyfast.engine.questions import questions_in
from pyfast.engine.record import STATES, digest
from pyfast.engine.run_folder import ANSWERS, JOURNAL, QUESTIONS, check_journal, is_running
from pyfast.engine.traces import TRACES, read_traces
from pyfast.errors import InputError, OtherBuildError, PyfastError
from pyfast.knowledge import Knowledge
from pyfast.knowledge.extraction import FOLDER as EXTRACTION
from pyfast.knowledge.snapshots import CURRENT, current_number, snapshot_numbers
from pyfast.retrieval import Index
from pyfast.retrieval.index.index import KNOWLEDGE
from pyfast.retrieval.index.manifest import commit_numbers, is_index, read_manifest
from pyfast.utils.sqlite_files import fault
from pyfast.utils.text_forms import counted

T = TypeVar("T")
# Errors of the machine: missing permissions, no file handles left, a disk that cannot be read or written.
_OF_THE_MACHINE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ESTALE}
_OF_SQLITE = {
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
}


@dataclass(frozen=True, slots=True)
class Check:
    """One check, and its result."""

    name: str
    passed: bool
    detail: str
    """What was found or is wrong, in one line"""
    looked: bool = True
    """False: the check could not read its files, for example for lack of permissions; `detail` gives the reason"""


@dataclass(frozen=True, slots=True)
class Verification:
    """The results of all checks of a run or an index."""

    path: Path
    kind: str
    """`run` or `index`"""
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether all checks passed."""
        return all(check.passed for check in self.checks)

    @property
    def summary(self) -> str:
        """One line with the folder, the number of checks, and the names of the checks that failed or could not
        be carried out."""
        results = []
        for result, looked in (("damaged", True), ("could not be checked", False)):
            if names := [check.name for check in self.checks if not check.passed and check.looked == looked]:
                results.append(f"{result}: {', '.join(names)}")
        return (
            f"{self.path}: {self.kind}, {counted(len(self.checks), 'check')}: {'; '.join(results) or 'undamaged'}"
        )


def verify(path: str | Path) -> Verification:
    """Check the checksums of a run or an index and, for a run, compare each answer with the journal.

    A stopped or killed run passes if it can be resumed. `verify` changes and repairs nothing, and can check a run
    while another process works on it.

    Args:
        path: The folder of a run or an index.

    Returns:
        The checks, and whether all of them passed.

    Raises:
        InputError: The folder is neither a run nor an index.
        OtherBuildError: The run, the index or its knowledge graph has a different format.

    Example:
        >>> import pyfast
        >>> verification = pyfast.verify("RUN")
        >>> verification.passed
        True
        >>> print(verification.summary)
        RUN: run, 5 checks: undamaged
    """
    folder = Path(path)
    if is_index(folder):
        return Verification(folder, "index", tuple(_index(folder)))
    if (folder / CONFIGURATION).is_file():
        return Verification(folder, "run", tuple(_run(folder)))
    raise InputError(f"{folder} is neither an index nor a run folder")


def _check(name: str, look: Callable[[], str]) -> Check:
    """Carry out a check. It passes if `look` returns a string, and fails if `look` raises an error; either becomes
    the detail of the result."""
    try:
        return Check(name, True, look())
    except OtherBuildError:
        raise
    except (sqlite3.Error, PyfastError, OSError) as error:
        machine = _of_the_machine(error)
        told = machine if isinstance(machine, OSError) else error
        return Check(name, False, fault(told) if isinstance(told, sqlite3.Error) else str(told), machine is None)


def _of_the_machine(error: BaseException | None) -> BaseException | None:
    """Return the machine error behind an error, which says nothing about the content of the files, or None if the
    error has another cause."""
    while error is not None:
        if getattr(error, "errno", None) in _OF_THE_MACHINE:
            return error
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _OF_SQLITE:
            return error
        error = error.__cause__ or error.__context__
    return None


class _DamageError(PyfastError):
    """Raised if a check finds a fault."""


def _run(folder: Path, within: str = "") -> Iterator[Check]:
    def check(name: str, look: Callable[[], str]) -> Check:
        return _check(within + name, look)

    described = _now(lambda: read_configuration(folder / CONFIGURATION))
    configuration = check(CONFIGURATION, lambda: f"format {FORMAT}, {_total(described()) or 'any'} questions")
    yield configuration
    if not configuration.passed:
        return
    total = _total(described())
    given = folder / QUESTIONS
    if given.is_file() and total is not None:
        yield check(QUESTIONS, lambda: _questions(given, described()["questions"]))
    # Read the files first, because another process may be writing: it writes to the journal before the files.
    answers = _now(lambda: _lines(folder / ANSWERS))
    traces = _now(lambda: _traces_digests(folder / TRACES))
    with contextlib.ExitStack() as held:
        journal = _now(lambda: held.enter_context(_opened(folder / JOURNAL)))
        yield check(JOURNAL, lambda: _journal(folder, described(), journal(), total))
        yield check(ANSWERS, lambda: _answers(folder, journal(), *answers(), total))
        yield check(TRACES, lambda: _traces(journal(), traces(), len(answers()[0])))
    if (folder / KNOWLEDGE).is_dir():
        yield check(KNOWLEDGE, lambda: _snapshot(folder / KNOWLEDGE))


def _now(read: Callable[[], T]) -> Callable[[], T]:
    """Read now, and return a function that returns what was read, or raises the error that reading raised."""
    result = Future[T]()
    try:
        result.set_result(read())
    except (PyfastError, OSError) as error:
        result.set_exception(error)
    return result.result


def _total(described: Configuration) -> int | None:
    """Return the number of questions, or None if the folder is an engine's journal, which has no such number."""
    return None if ENGINE in described else described["questions"]["count"]


def _questions(path: Path, recorded: Mapping[str, Any]) -> str:
    questions = questions_in(path, recorded["count"])
    if questions.digest != recorded["digest"]:
        raise _DamageError(
            f"these are not the questions that {CONFIGURATION} records; delete {path}, and resume the run"
        )
    return counted(questions.count, "question")


def _opened(journal: Path) -> contextlib.closing[sqlite3.Connection]:
    journal.open("rb").close()  # SQLite raises the same error for a missing file and for missing permissions.
    return contextlib.closing(open_to_read(journal))


def _journal(folder: Path, described: Configuration, database: sqlite3.Connection, total: int | None) -> str:
    check_journal(folder, described, database)
    (state,) = database.execute("PRAGMA integrity_check(1)").fetchone()
    if state != "ok":
        raise _DamageError(f"SQLite: {state}")
    completions = broken = ended = 0
    for number, entry in database.execute("SELECT question, entry FROM completions"):
        completions += 1
        broken += not sound(entry, number)
    if broken:
        raise _DamageError(f"{broken} of {completions} completions were changed")
    for number, state, ledger in database.execute("SELECT number, state, ledger FROM questions"):
        ended += 1
        if not 0 <= number < (math.inf if total is None else total) or state not in STATES:
            of = "" if total is None else f" of {total}"
            raise _DamageError(f"question {number + 1}{of} has the invalid state {str(state)[:40]!r}")
        if not ledger_of(ledger):
            raise _DamageError(f"the ledger of question {number + 1} is damaged")
    prompts = KeptPrompts(database).check()
    kept = f", {counted(prompts, 'prompt')}" if prompts else ""
    return f"{counted(completions, 'completion')}, {counted(ended, 'question')} ended{kept}"


def _traces_digests(path: Path) -> list[str]:
    digests = []
    # With too few digests, the comparison reports the missing lines.
    with contextlib.suppress(FileNotFoundError, IsADirectoryError):
        for line in read_traces(path):
            digests.append(digest(line))
    return digests


def _lines(path: Path) -> tuple[list[str], bool]:
    """Return (the digest of each complete line of a file, whether an incomplete line follows)."""
    digests, line = [], b"\n"
    with contextlib.suppress(FileNotFoundError, IsADirectoryError), path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                digests.append(digest(line))
    return digests, not line.endswith(b"\n")


def _answers(folder: Path, journal: sqlite3.Connection, answers: list[str], torn: bool, of_run: int | None) -> str:
    known = _known(journal, "line")
    total = len(known) if of_run is None else of_run
    if len(answers) > total or (torn and len(answers) == total):
        raise _DamageError(f"further lines follow the answers to all {total} questions")
    unknown = _compare(known, answers)
    ended = sum(line is not None for line in known.values())
    if len(answers) < total == ended and not is_running(folder):
        hint = "; repeat the command to restore them" if of_run is not None else ""
        raise _DamageError(f"{total - len(answers)} of {total} answers are missing{hint}")
    state = "" if len(answers) == total else "; running" if is_running(folder) else "; the same command resumes it"
    return f"{len(answers)} of {total} lines match the journal{unknown}{state}"


def _traces(journal: sqlite3.Connection, traces: list[str], answers: int) -> str:
    if len(traces) < answers:
        raise _DamageError(f"only {len(traces)} of the {answers} lines can be read")
    match = counted(len(traces), "line matches", "lines match")
    return f"{match} the journal{_compare(_known(journal, 'trace'), traces)}"


def _known(journal: sqlite3.Connection, column: str) -> dict[int, str | None]:
    """Return the digests in the journal's column `column` (`line` for answers, `trace` for traces), by question
    number. None: there is no digest."""
    return dict(journal.execute(f"SELECT number, {column} FROM questions").fetchall())


def _compare(known: Mapping[int, str | None], digests: list[str]) -> str:
    """Compare the digests of a file's lines with those in the journal. Raises `_DamageError` if one differs.

    Returns a string with the number of lines without a digest in the journal, or an empty string if there are
    none.
    """
    other = [
        number for number, line in enumerate(digests, start=1) if known.get(number - 1, "") not in (None, line)
    ]
    if other:
        raise _DamageError(f"{len(other)} of {len(digests)} lines were changed, starting with line {other[0]}")
    unknown = sum(known[number] is None for number in range(len(digests)))
    return f", except for {unknown} without digests" if unknown else ""


def _snapshot(folder: Path) -> str:
    store = Knowledge.open(folder)
    return f"{counted(len(store), 'triple')}, {counted(len(store.manifest['files']), 'file')}"


def _index(folder: Path) -> Iterator[Check]:
    def contents() -> str:
        index = Index(folder)
        index.check_all()
        checked = {part.files.folder for part in index.parts if part.files}
        earlier = [number for number in commit_numbers(folder) if number != index.commit]
        for number in earlier:
            for part in Index(folder, commit=number).parts:
                if part.files and part.files.folder not in checked:
                    part.check_all()
                    checked.add(part.files.folder)
        manifest = index.manifest
        also = f"; {counted(len(earlier), 'earlier commit')}" if earlier else ""
        return f"{counted(manifest['passages'], 'passage')}, {counted(len(manifest['files']), 'file')}{also}"

    def documents() -> str:
        index = Index(folder)
        for part in index.parts:
            if uri := other_than_digest(part.corpus):
                raise _DamageError(f"{uri} does not match its digest; build the index again")
        return f"{counted(index.manifest['documents'], 'document')} with the right digest"

    def snapshots() -> str:
        current = current_number(home)
        for number in snapshot_numbers(home):
            if number != current:
                read_manifest(home / str(number), "knowledge")
        return _snapshot(home / str(current))

    yield _check("index", contents)
    yield _check("documents", documents)
    home = folder / KNOWLEDGE
    if (home / CURRENT).exists():
        yield _check(KNOWLEDGE, snapshots)
    if (home / EXTRACTION / CONFIGURATION).is_file():
        yield from _run(home / EXTRACTION, f"{KNOWLEDGE}/{EXTRACTION}/")
