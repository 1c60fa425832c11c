"""The folder of a run: run.toml, questions.jsonl, journal.sqlite, answers.jsonl, traces.jsonl.zst.

These files are enough to continue the run, even if it is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any

import orjson

import pyfast.engine.configuration as run_toml
import pyfast.engine.journal.journal as journals
from pyfast.engine.configuration import CONFIGURATION, Configuration
from pyfast.engine.journal.journal import Journal, JournalledBatches, Key, Outcome
from pyfast.engine.journal.ledger import Ledger
from pyfast.engine.journal.prompt_store import Asked
from pyfast.engine.outages import Waiting
from pyfast.engine.questions import Question, Questions, first_change, line_of, read_questions, write_questions
from pyfast.engine.record import Record, digest
from pyfast.engine.traces import LINES, TRACES, TraceWriter, count_traces, details_of, read_traces
from pyfast.errors import InputError, LLMUnavailableError, OtherRunError, RunError, RunInUseError
from pyfast.llm import Message
from pyfast.llm.protocol import BatchLog
from pyfast.utils.files import free_name, make_folder, refuse_links, write_atomically
from pyfast.utils.log import LOG
from pyfast.utils.options import RUN_DEFAULTS, RunOptions
from pyfast.utils.text_forms import some

GROWN = ("questions.count", "questions.digest")
"""The values in run.toml that change if a run is resumed with more questions"""
OF_CODE = ("code.", "system.code ")
"""The prefixes of the names of those values in run.toml that change with the version of the code"""
JOURNAL, ANSWERS, QUESTIONS = "journal.sqlite", "answers.jsonl", "questions.jsonl"
BLOCKS = "blocks"
"""The folder with the blocks that a cluster's workers answer, until they are merged (`pyfast.engine.distributed`)
"""
OUTAGE = "outage.json"  # This file exists while the run waits for its LLM.


def check_run(
    path: Path, described: Configuration, unknown: Iterable[str] = (), asked: Questions | None = None
) -> bool:
    """Check, without changing anything, that a run can start or resume in the folder `path`.

    Args:
        path: The folder.
        described: The run's configuration.
        unknown: The names of values that are not known yet, such as "llm.context_window", and so are not compared.
        asked: The questions. If they differ from those in the folder, the error names the first that does.

    Returns:
        Whether the folder contains answers, completions or submitted batches, which a new run would lose.

    Raises:
        OtherRunError: `path` contains another run.
        InputError: `path` contains something other than a run.
        OtherBuildError: The run has a different format.
    """
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} exists and is not a folder; choose another one")
    if not (path / CONFIGURATION).exists():
        if _size(path / ANSWERS):
            raise InputError(f"{path} contains answers but no {CONFIGURATION}; choose another folder")
        return _has_begun(path)
    recorded = run_toml.read_configuration(path / CONFIGURATION)
    if run_toml.ENGINE in recorded:
        raise InputError(f"{path} is the journal of an engine, which cannot be resumed; choose another folder")
    if not _has_begun(path):
        return False
    hint = ""
    if changed := run_toml.differences(recorded, described, unknown):
        if code := [value for value in changed if value.startswith(OF_CODE)]:
            raise OtherRunError(
                f"{path} was started with different code: {'; '.join(code)}. You can read, evaluate and judge it,"
                " but only the same code can resume it; use another folder, --restart or --accept-code (the run's"
                " answers then come from both versions)",
                changed,
            )
        *others, last = changed  # The questions' checksum comes last. Fewer questions explain its change.
        if last.startswith("questions.digest "):
            place = described["places"]["questions"]
            is_kept = not place or Path(place) == path / QUESTIONS
            told = "its questions have changed" if is_kept else f"{place} has changed since the run began"
            first = recorded.get("places", {}).get("questions")
            if not is_kept and first and first != place:
                told = f"the questions of {place} are not those of {first}"
            fewer = described["questions"]["count"] < recorded["questions"]["count"]
            changed = others if fewer else [*others, told]
            limits = any(one.startswith("questions.documents ") for one in others)
            if asked is not None and (path / QUESTIONS).exists() and not limits:
                kept = read_questions(path / QUESTIONS, recorded["questions"]["count"])
                kept = kept if asked.restricted else (replace(one, documents=()) for one in kept)
                changed += first_change(kept, asked.read())
            hint = f" (with --reuse {path}, it takes over this run's replies)"
        raise OtherRunError(
            f"{path} was started with different values: {'; '.join(changed)}. Use the same values, another"
            f" folder{hint}, or --restart",
            changed,
        )
    check_journal(path, recorded)
    return True


def count_of(path: Path, described: Configuration) -> int:
    """Return the number of questions in run.toml. For an engine's journal, return the number of ended questions;
    raises `InputError` if the journal cannot be read."""
    if run_toml.ENGINE in described:
        with journals.reading(path / JOURNAL) as database:
            return int(database.execute("SELECT count(*) FROM questions").fetchone()[0])
    return int(described["questions"]["count"])


def check_journal(path: Path, recorded: Configuration, journal: sqlite3.Connection | None = None) -> None:
    """Raise `InputError` if the journal in a run's folder does not belong to `recorded`, its run.toml.
    `journal` is the open journal. None: it is not open yet."""
    known = journals.runs_of(path / JOURNAL) if journal is None else journals.runs_in(journal)
    if known is not None and run_toml.configuration_digest(recorded) not in known:
        raise InputError(
            f"{path}: {JOURNAL} does not match {CONFIGURATION}: one of them was changed or comes from another run."
            " Restore the original, or use --restart"
        )


def check_reused(path: Path, described: Configuration, run: Path, known: bool = False) -> Configuration:
    """Check that the run in the folder `path` can use the replies of another run.

    Args:
        path: The folder of the new run.
        described: The configuration of the new run.
        run: The folder of the other run.
        known: Whether the context windows in `described` are known.

    Returns:
        The configuration of the other run.

    Raises:
        InputError: There is no other run, its files do not belong together, or it has another LLM.
        OtherBuildError: The other run has a different format.
    """
    if not (run / JOURNAL).is_file() or path.resolve() == run.resolve():
        raise InputError(f"{run}: --reuse expects the folder of another run")
    before = run_toml.read_configuration(run / CONFIGURATION)
    check_journal(run, before)
    llms = {"llm": before.get("llm", {})}, {"llm": described["llm"]}
    if not run_toml.roles_in_common(llms[0]["llm"], llms[1]["llm"], known):
        changed = run_toml.differences(*llms)
        raise InputError(
            f"{run}: the replies of this run cannot be reused, because its LLM is different: {'; '.join(changed)}"
        )
    return before


def set_aside(path: Path) -> Path | None:
    """Rename the folder of a run, so that a new run can use its name.

    Args:
        path: The folder of a run.

    Returns:
        The new path. None if there is no such folder.

    Raises:
        InputError: The run is in use.
    """
    if not (path / CONFIGURATION).exists():
        return None
    path = path.resolve()  # A relative path such as "." has no name.
    with locked(path):
        aside = free_name(path, "old")
        path.rename(aside)
    return aside


def is_running(path: Path) -> bool:
    """Return whether any process is working on the run."""
    return is_locked(path / ANSWERS)


def is_locked(path: Path) -> bool:
    """Return whether another process, or another part of this one, holds the lock of a file or folder."""
    with contextlib.suppress(OSError):
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
    return False


@dataclass(slots=True)
class _Group:
    """Rows of the journal, and lines of the answers and traces, that are written together."""

    completions: list[bytes] = field(default_factory=list)
    waiting: list[asyncio.Future[None]] = field(default_factory=list)
    """The calls waiting for their completion to be stored"""
    asked: dict[str, Asked] = field(default_factory=dict)
    """The requests of the completions, by digest, if prompts are stored"""
    ended: list[bytes] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    traces: list[bytes] = field(default_factory=list)
    questions: list[bytes] = field(default_factory=list)
    moved: list[tuple[int, int]] = field(default_factory=list)
    """The questions to be renumbered, with their old and new numbers"""


class RunFolder:
    """An open run folder, which only one process at a time can have open.

    All completions and finished questions of one turn of the event loop are committed in one transaction, after
    which the answers are written. A separate thread does all this: in the event loop, each SQLite call would
    release the GIL, and the loop would have to wait to reacquire it.
    """

    def __init__(
        self,
        path: Path,
        described: Configuration,
        options: RunOptions = RUN_DEFAULTS,
        extends: bool = False,
        questions: Questions | None = None,
    ) -> None:
        """Open the folder of a run, or start the run. `extends`: the folder may contain the same run with fewer
        questions. `questions`: those that the folder keeps. Raises `InputError` if another process has the folder
        open, or if the folder has a different run."""
        self._path = path
        self._places = os.fspath(path / JOURNAL), os.fspath(path / ANSWERS)
        self._keeps_prompts = options.keep_prompts
        self.asks_once = options.ask_once
        """Whether questions share the replies to identical requests at temperature 0"""
        self._stop_is_noted = False
        count = described.get("questions", {}).get("count")
        with contextlib.ExitStack() as opened:
            make_folder(path)
            self._answers = opened.enter_context(locked(path))
            self._file = os.fstat(self._answers.fileno())
            begun = check_run(path, described, GROWN if extends else ())
            if not begun:  # The journal may belong to another configuration in which no call was made.
                for suffix in ("", "-wal", "-shm"):
                    (path / (JOURNAL + suffix)).unlink(missing_ok=True)
            text, tables = run_toml.in_toml(described)
            runs = [run_toml.configuration_digest(tables)]
            if extends:
                before = run_toml.read_configuration(path / CONFIGURATION)
                runs.insert(0, run_toml.configuration_digest(before))
            is_new = not (path / CONFIGURATION).exists()
            self._done = done_in(path, count)
            self._open_journal = partial(Journal, path / JOURNAL, options.sync, runs)
            self.journal = self._open_journal(checked=self._done is None)
            opened.callback(lambda: self.journal.close())
            if self.journal.salvaged is not None:
                self._done = None  # Rows may be lost.
            self.journal.start_session()
            # Before run.toml: after a kill, the file may contain more questions than run.toml, but never fewer.
            if questions is not None and not (begun and _keeps(path, questions, described)):
                write_questions(questions, path / QUESTIONS)
            # From here on, other processes can read the folder.
            write_atomically(path / CONFIGURATION, text, durable=True)
            self._traces = TraceWriter(path / TRACES)
            opened.callback(self._traces.close)
            of_engine = run_toml.ENGINE in described
            self._questions = opened.enter_context((path / QUESTIONS).open("ab")) if of_engine else None
            self._kept = 0  # questions of an engine
            _make_private(path, is_new)
            self._writer = ThreadPoolExecutor(1, "pyfast-journal")
            opened.callback(self._writer.shutdown)
            self._opened = opened.pop_all()
        # A run that is done has completions, and nothing reads them before the journal is checked.
        self.replaying = self._done is not None or not self.journal.is_empty()
        """Whether the journal may contain completions for unfinished questions"""
        self._began: dict[int, float] = {}
        """When work on each question in progress started, as in `Ledger.began`"""
        self._lines: dict[int, tuple[bytes, bytes]] = {}
        """The lines (answer and trace) of finished records not yet written, by the `id()` of the record object"""
        self._group = _Group()
        self._armed = False
        self._gathered = self._group
        """The group that is being written, or that was written last"""
        self._writing: Future[None] | None = None
        self._broken: BaseException | None = None

    def batches(self) -> BatchLog:
        """Return the object that records in the journal which batches the run has submitted to an LLM provider."""
        # A run that is done makes no calls, and the rows of its batches and calls were not checked.
        return BatchLog() if self._done is not None else JournalledBatches(lambda: self.journal, self._writer)

    def note_outage(self, waiting: Waiting | None) -> None:
        """Note in the folder that the run is waiting for an LLM, so that `pyfast status` can show it, or remove
        the note (None)."""
        path = self._path / OUTAGE
        with contextlib.suppress(OSError):  # The file only informs readers, so an error does not matter.
            if waiting is None:
                path.unlink(missing_ok=True)
            else:
                write_atomically(path, orjson.dumps(waiting).decode())

    def forget_failures(self, only_of_transport: bool = False) -> int:
        """Let the run try its failed questions again, and return their number.

        With `only_of_transport`, only those with a call that failed in transit are tried again.
        """
        failed = self.journal.failed(only_of_transport and self._done is None)
        if self._done is not None:
            if not failed:
                return 0
            self.journal.close()
            self.journal = self._open_journal()  # The completions are read again, so the journal is checked.
            failed = self.journal.failed(only_of_transport)
            if not failed and self.journal.salvaged is None:
                return 0
            self._done = None
        if failed:
            self._answers.seek(0)
            end = sum(len(line) for line in islice(self._answers, min(failed)))
            self._answers.truncate(end)  # The journal gives the later answers again.
        if failed or self.replaying:
            self.journal.forget(failed, only_of_transport)
        return len(failed)

    def reuse(self, runs: Sequence[Path], described: Configuration) -> None:
        """Copy the replies of other runs into the journal, except those that it already contains. Raises the same
        errors as `check_reused`, and `InputError` if a journal cannot be read."""
        for run in journals.runs_to_copy(self._path / JOURNAL, runs):
            before = check_reused(self._path, described, run, known=True)
            roles = run_toml.roles_in_common(before["llm"], described["llm"])
            replies, damaged = self.journal.copy_replies(run, roles)
            LOG.info("%s: the %d replies of this run are reused for identical requests", run, replies)
            if damaged:
                LOG.warning("%s is damaged: %d of its replies cannot be reused", run, damaged)
            one, other = before.get("index", {}), described.get("index", {})
            if one.get("corpus") != other.get("corpus"):
                told = "%s: the index of this run was at commit %s, but the new run uses commit %s"
                facts = [str(table.get("commit", "none")) for table in (one, other)]
                if facts[0] == facts[1]:  # Every new index begins with commit 1.
                    told = "%s: the index of this run (%s) has different documents from that of the new run (%s)"
                    facts = [
                        f"{it.get('places', {}).get('index', '')}, corpus {it['index']['corpus'][:8]}"
                        for it in (before, described)
                    ]
                LOG.warning(told, run, *facts)

    def answered(self, questions: Iterable[Question]) -> int:
        """Return how many questions, counted from the first, have an intact answer in answers.jsonl.

        All later lines are removed, beginning with the first one that is incomplete, changed or without its trace.
        Their answers are written again from the journal, in order, as are those of an unfinished conversation,
        because its next turn needs them.
        """
        if self._done is not None:
            self._traces.go_on(self._done)
            self._answers.seek(0, os.SEEK_END)
            return self._done
        known, known_traces = self.journal.digests("line"), self.journal.digests("trace")
        traces = read_traces(self._path / TRACES)
        done, end, whole, conversation = 0, 0, (0, 0), None
        self._answers.seek(0)
        for question in questions:
            if question.conversation is None or question.conversation != conversation:
                whole, conversation = (done, end), question.conversation
            line, trace = self._answers.readline(), next(traces, b"")
            if not _stands(line, known.get(done), partial(_is_record, question.id)) or not _stands(
                trace, known_traces.get(done), partial(_is_trace, question.id)
            ):
                if line.endswith(b"\n") and done in known and digest(line) not in known.values():
                    changed = f"{self._path / ANSWERS}: line {done + 1} was changed"
                    LOG.warning("%s; pyfast restores it from the journal", changed)
                break
            done, end = done + 1, end + len(line)
        else:
            whole = done, end
        done, end = whole
        self._answers.truncate(end)
        if any(number not in known for number in range(done)):
            self._note_again(done)
        self._answers.seek(end)
        self._traces.go_on(done)
        return done

    def _note_again(self, done: int) -> None:
        """Write the journal rows of the first `done` questions again, from the answers. Called if the journal lost
        rows because of damage or a power cut."""
        self._answers.seek(0)
        both = zip(range(done), self._answers, read_traces(self._path / TRACES), strict=False)
        while some := list(islice(both, 1000)):
            rows = []
            for number, line, trace in some:
                record = Record.read(line)
                rows.append(_row(number, record, {**asdict(record.usage), "stages": {}}, line, trace))
            self.journal.commit([], rows)

    def begin(self, number: int, earlier: float) -> None:
        """Note that work on a question starts, on which earlier sessions worked for `earlier` seconds."""
        self._began[number] = time.perf_counter() - earlier

    async def store_completion(
        self,
        number: int,
        key: Key,
        outcome: Outcome,
        name: str = "",
        messages: tuple[Message, ...] = (),
        reused: bool = False,
    ) -> int:
        """Store a completion and, if the run stores prompts, the prompt's name and the request's messages.
        `reused`: the completion comes from an earlier run or another question.

        Waits for the commit, and returns how many completions were committed together. Raises `CallError` if the
        completion cannot be stored, and `RunError` if the disk fails.
        """
        now = time.perf_counter()  # A reply can come after the question's time is up.
        row = journals.completion_row(number, key, outcome, now - self._began.get(number, now), reused)
        self._arm()
        group, stored = self._group, asyncio.get_running_loop().create_future()
        group.completions.append(row)
        group.waiting.append(stored)
        if self._keeps_prompts:
            group.asked[key[0]] = Asked(name, messages)
        await stored
        return len(group.completions)

    def note_stop(self, questions: Sequence[str], error: LLMUnavailableError) -> None:
        """Record that the LLM ended the run while these questions were in progress. If some of them were also in
        progress at the last stop, the error names them. Only the first call per session has an effect, because the
        LLM ends all questions."""
        if self._stop_is_noted:
            return
        self._stop_is_noted = True
        again = self.journal.note_stop(questions)
        if len(again) == 1:
            what = f"the run has stopped at the question {again[0]!r} before; its prompt may be the reason"
            error.args = (f"{error}; {what}",)
        elif again:
            before = f"the run has stopped before while {len(again)} of these questions were in progress"
            what = "the prompt of one of them may be the reason: find it with --concurrency 1"
            error.args = (f"{error}; {before}: {some([*map(repr, again)])}; {what}",)

    def end(self, number: int, record: Record, ledger: Ledger) -> None:
        """Note in the journal that a question has ended, with its state and its ledger."""
        self._arm()
        self._began.pop(number, None)
        line, trace = self._lines[id(record)] = record.line(), record.details()
        self._group.ended.append(_row(number, record, ledger, line, trace))

    def write(self, record: Record) -> None:
        """Write the answer and the trace of a question that has ended. Call this method in the order of the
        questions."""
        self._arm()
        line, trace = self._lines.pop(id(record))
        self._group.lines.append(line)
        self._group.traces.append(trace)

    def keep(self, ticket: int, question: Question, record: Record, ledger: Ledger) -> None:
        """Write what the folder stores about a finished question of an engine. From now on, its number is that of
        its line; until now, it was `ticket`, which must be below 0."""
        self._group.moved.append((ticket, self._kept))
        self._group.questions.append(line_of(question))
        self._began.pop(ticket, None)
        self.end(self._kept, record, ledger)
        self.write(record)
        self._kept += 1

    def take_in(self, block: Path, first: int, count: int, done: int) -> None:
        """Append the answers of a block, a finished run of some of this run's questions in its own folder.

        When the method returns, the answers have been synced to disk, and the block can be deleted. If the process
        is killed, call the method again.

        Args:
            block: The folder of the block.
            first: The position of the block's first question in this run, from 0.
            count: The number of questions in the block.
            done: The number of answers in this run. If the run was killed, some of them may be the block's first
                answers.

        Raises:
            RunError: Answers are missing from the block, or the disk is full.
        """
        self.journal.take_in(block / JOURNAL, 0, count - 1, first)
        written = done
        try:
            with (block / ANSWERS).open("rb") as answers:
                both = islice(zip(answers, read_traces(block / TRACES), strict=False), done - first, None)
                while lines := list(islice(both, LINES)):
                    self._traces.write([trace for _, trace in lines])
                    self._answers.write(b"".join(line for line, _ in lines))
                    written += len(lines)
            self._answers.flush()
            os.fsync(self._answers.fileno())
            self._traces.sync()
        except OSError as error:
            raise RunError(f"{self._path / ANSWERS}: {error.strerror}") from None
        if written != first + count:
            raise RunError(f"{block} is damaged: it contains only {written - first} of {count} answers")
        self._check_place()

    def flush(self) -> None:
        """Wait until everything is written. Raises `RunError` if something cannot be written."""
        while self._writing is not None or self._armed:
            if self._writing is None:
                self._start()
            else:
                wait([self._writing])
                self._written(self._writing)
        if self._broken is not None:
            raise self._broken

    def close(self) -> None:
        """Release the folder. Raises `RunError` if the answers cannot be written to the disk."""
        try:
            with self._opened:
                os.fsync(self._answers.fileno())
        except OSError as error:
            raise RunError(f"{self._path / ANSWERS}: {error.strerror}") from None

    def _arm(self) -> None:
        if self._broken is not None:
            raise self._broken
        if not self._armed:
            self._armed = True
            if self._writing is None:
                asyncio.get_running_loop().call_soon(self._start)

    def _start(self) -> None:
        if not self._armed or self._writing is not None:  # `flush` has written the group already.
            return
        self._armed = False
        loop = asyncio.get_running_loop()
        self._gathered, self._group = self._group, _Group()
        self._writing = self._writer.submit(self._commit, self._gathered)
        self._writing.add_done_callback(lambda written: loop.call_soon_threadsafe(self._written, written))

    def _written(self, written: Future[None]) -> None:
        if written is not self._writing:
            return
        self._writing = None
        self._broken = written.exception()
        for stored in self._gathered.waiting + (self._group.waiting if self._broken else []):
            if stored.done():  # The coroutine was cancelled.
                continue
            if self._broken is None:
                stored.set_result(None)
            else:
                stored.set_exception(self._broken)
        if self._broken is not None:
            self._armed = False
        elif self._armed:
            self._start()

    def _commit(self, group: _Group) -> None:
        try:
            if self._questions is not None:
                self._questions.write(b"".join(group.questions))
                self._questions.flush()
            if group.completions or group.ended:
                self.journal.commit(group.completions, group.ended, group.asked, group.moved)
            try:
                self._traces.write(group.traces)  # Traces come first, so that each written answer has its trace.
                self._answers.write(b"".join(group.lines))
                self._answers.flush()
            except OSError as error:
                raise RunError(f"{self._path / ANSWERS}: {error.strerror}") from None
        finally:
            self._check_place()

    def _check_place(self) -> None:
        """Raise `RunError` if the folder was moved or deleted. Otherwise, pyfast would continue to write to the
        moved or deleted files, which it has open."""
        files = self.journal.file, self._file
        for path, file in zip(self._places, files, strict=True):
            try:
                there = file is not None and os.path.samestat(os.stat(path), file)
            except OSError:
                there = False
            if not there:
                raise RunError(
                    f"{self._path}: {os.path.basename(path)} was deleted or moved during the run; if it was"
                    " moved, the moved folder contains the finished work"
                )


@contextlib.contextmanager
def locked(path: Path) -> Iterator[IO[bytes]]:
    """Open the answers file of a run, and lock it for this process.

    The operating system releases the lock when the process ends, even if it is killed.

    Raises `RunInUseError` if another process is working on the run, and `InputError` if it has moved the run, or
    if a link in the folder leads to a file outside it.
    """
    refuse_links(path)
    place = path / ANSWERS
    file = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with open(file, "r+b", buffering=1 << 20) as answers:
        for patience in (0.1, 0.1, None):  # `pyfast status` briefly holds the lock.
            try:
                fcntl.flock(answers, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if patience is None:
                    raise RunInUseError(f"another process is working on the run {path}") from None
                time.sleep(patience)
        if not place.exists() or not os.path.samestat(place.stat(), os.fstat(file)):
            raise InputError(f"another process has moved the run {path}")
        yield answers


def _make_private(path: Path, is_new: bool) -> None:
    """Make the files of a run, and a new folder, readable only by their owner. An existing folder keeps its
    permissions."""
    # The folder may belong to another user, or the file system has no permissions.
    with contextlib.suppress(OSError):
        names = CONFIGURATION, QUESTIONS, ANSWERS, TRACES
        for file in (*map(path.joinpath, names), *path.glob(f"{JOURNAL}*")):
            if file.is_file() and not file.is_symlink():
                file.chmod(0o600)
        if is_new:
            path.chmod(0o700)


def _has_begun(path: Path) -> bool:
    """Return whether the folder contains answers, completions or submitted batches, which a new run would lose."""
    if _size(path / ANSWERS):
        return True
    return (path / JOURNAL).exists() and journals.has_calls(path / JOURNAL)


def _keeps(path: Path, questions: Questions, described: Configuration) -> bool:
    """Return whether a run's folder already contains the questions, so that they need not be written. If they come
    from the folder's own file, they are written again, because their gold may have changed."""
    kept = path / QUESTIONS
    same = run_toml.recorded_value(path, "questions", "digest") == described["questions"]["digest"]
    return same and kept.exists() and questions.place != str(kept)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def count_altered(path: Path, known: Mapping[int, str]) -> tuple[int, int]:
    """Return the number of lines in answers.jsonl, and how many are missing at its end or have changed (their
    digests differ from those in the journal). `known` contains the journal's digests, by question number."""
    number, altered = -1, 0
    with (path / ANSWERS).open("rb") as answers:
        for number, line in enumerate(answers):
            altered += known.get(number) != digest(line)
    lines = number + 1
    while number + 1 in known:
        number, altered = number + 1, altered + 1
    return lines, altered


def done_in(path: Path, count: object) -> int | None:
    """Return `count` if all questions of the run have ended and all their lines are intact; otherwise, return
    None.

    `count` is the number of questions in run.toml.
    """
    with contextlib.suppress(InputError, OSError):
        if not isinstance(count, int) or count_traces(path / TRACES) != count:
            return None
        with journals.reading(path / JOURNAL) as database:
            known = journals.digests(database, "line")
        if len(known) == count:
            return count if count_altered(path, known) == (count, 0) else None
    return None


def _row(number: int, record: Record, ledger: Ledger | dict[str, Any], line: bytes, trace: bytes) -> bytes:
    """Create the journal row of an ended question. `line` and `trace` are its lines in the files."""
    ended = record.id, record.state, record.reason
    return journals.row_of_question(number, *ended, ledger, digest(line), digest(trace))


def _stands(line: bytes, known: str | None, is_whole: Callable[[bytes], bool]) -> bool:
    """Return whether a line is intact. If its digest is unknown, `is_whole` decides."""
    if known is not None:
        return digest(line) == known
    with contextlib.suppress(InputError):  # A line without its line break is incomplete.
        return line.endswith(b"\n") and is_whole(line)
    return False


def _is_record(id: str, line: bytes) -> bool:
    """Return whether a line that the journal does not know counts as an answer. That of a failed question does
    not: the cause is unknown, and perhaps no call reached the LLM, so the question is tried again."""
    record = Record.read(line)
    return record.id == id and record.state != "failed"


def _is_trace(id: str, line: bytes) -> bool:
    return bool(details_of(line, id, TRACES))
