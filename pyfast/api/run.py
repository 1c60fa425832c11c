"""`pyfast.Run`: a run's records, progress, prompts and scores."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, overload

import pyarrow as pa

from pyfast.api.index import index_of
from pyfast.corpus import Document, KnowledgeGraph, Table
from pyfast.engine import Question, Questions, Record, Status, Summary, read_status
from pyfast.engine.configuration import COLUMNS, CONFIGURATION, read_configuration, recorded_path, recorded_value
from pyfast.engine.journal.journal_reader import CachedTokens, cached_tokens, calls_of, used_by
from pyfast.engine.journal.prompt_store import LLMCall
from pyfast.engine.question_files import (
    NO_COLUMNS,
    gold_field,
    own_columns,
    quietly,
    read_question_records,
    records_of_gold,
    rows_of_table,
)
from pyfast.engine.questions import read_questions
from pyfast.engine.run_folder import ANSWERS, JOURNAL, QUESTIONS, count_of
from pyfast.engine.status import opened_run, status_of
from pyfast.engine.traces import TRACES, Traces
from pyfast.errors import InputError
from pyfast.evaluation import Metric, Report, evaluate
from pyfast.evaluation.cost import Prices, listed, money_by_id
from pyfast.evaluation.data_sets import GOLD
from pyfast.evaluation.evaluate import Answers
from pyfast.evaluation.evidence import Rows, row_text, with_rows
from pyfast.evaluation.gold import Gold, Lines, read_gold
from pyfast.evaluation.results import Results, rows_of, schema_of
from pyfast.retrieval import Index
from pyfast.utils.extras import explained
from pyfast.utils.log import LOG
from pyfast.utils.text_forms import counted, some

GoldLike = str | Path | tuple[str | Path, Mapping[str, str]] | Iterable[Mapping[str, Any]]


class Run:
    """A run: the answers to a set of questions. `pyfast.answer` returns a run, and `Run(path)` opens one from its
    folder.

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
            InputError: The folder contains no run.
        """
        self.path: Path | None = Path(path)
        """The folder of the run. None: the run is in memory"""
        self.session: Summary | None = None
        """The counts of the session that returned this run: the outcomes of its questions, its LLM calls, tokens
        and seconds. None: the run was only opened from its folder
        """
        self._records: Sequence[Record] = ()
        self._questions: Questions | None = None
        self._lines: tuple[tuple[int, int, int], _Lines] | None = None
        self._status: Status | None = None
        with opened_run(self.path):
            pass

    @classmethod
    def finished(cls, path: Path | None, questions: Questions, session: Summary, records: Sequence[Record]) -> Run:
        """Create the run that `pyfast.answer` returns."""
        run = cls.__new__(cls)
        run.path, run.session, run._questions = path, session, questions
        run._records, run._lines = records, None
        run._status = status_of(session, questions.count) if path is None else None
        return run

    @property
    def records(self) -> Sequence[Record]:
        """The records (results) of the finished questions, in the order of the questions. If the run has a
        folder, they are read from it.

        A record reads its `evidence` and `trace` from disk when you first access them.

        Raises:
            InputError: The folder's answers cannot be read.
        """
        if self.path is None:
            return self._records
        try:
            file = (self.path / ANSWERS).stat()
        except OSError as error:
            raise InputError(f"{self.path / ANSWERS} cannot be read: {error.strerror}") from None
        state = file.st_ino, file.st_size, file.st_mtime_ns
        if self._lines is None or self._lines[0] != state:  # Another session or process has added records.
            self._lines = state, _Lines(self.path / ANSWERS)
        return self._lines[1]

    @property
    def status(self) -> Status:
        """The run's progress: question states, failures by reason, LLM calls, tokens, times by stage."""
        if self._status is not None:
            return self._status
        assert self.path is not None
        return read_status(self.path)

    def prompts(self, id: str) -> list[LLMCall]:
        """Return the LLM calls of one question, each with its prompt and reply.

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
        return calls_of(stored(self) / JOURNAL, id)

    def prefix_cache(self, tokens: float = math.inf) -> dict[str, CachedTokens]:
        """Estimate what a prefix cache would save, for an LLM whose server does not report its cached tokens.

        The stored prompts are replayed, in the order in which the calls ended, through a simulation of vLLM's
        cache, with words in place of tokens.

        Args:
            tokens: The size of the cache in tokens. By default, it has no limit.

        Returns:
            The `calls`, `tokens` and `cached` tokens of each prompt, by name.

        Raises:
            InputError: The run is in memory or stores no prompts, or the run's journal is damaged.

        Example:
            >>> import pyfast
            >>> for name, used in pyfast.Run("RUN").prefix_cache(100_000).items():
            ...     print(name, used.tokens - used.cached)
        """
        return cached_tokens(stored(self) / JOURNAL, tokens)

    def money(self, prices: str | Path | Prices, *, paid: bool = False) -> float:
        """Compute the price of the LLM calls of all questions that have ended.

        Args:
            prices: A price list, or its file (see `pyfast.evaluation.read_prices`).
            paid: Leave out calls whose reply was reused from an earlier run or another question, because they cost
                nothing.

        Returns:
            The price in the list's currency. Without `paid`, this is what a run without `reuse` would cost, as in
            `pyfast.evaluate` and `pyfast.export`.

        Raises:
            InputError: The run is in memory, or a model is missing from the price list.

        Example:
            >>> import pyfast
            >>> pyfast.Run("RUN").money("prices.toml")
            0.31
        """
        folder = stored(self, "does not record its models")
        return sum(money_by_id(folder, listed(prices), paid).values())

    def to_arrow(
        self,
        gold: GoldLike | None = None,
        *,
        metrics: Sequence[str | Metric] | None = None,
        sources: bool = False,
    ) -> pa.Table:
        """Return the results as an Arrow table with one row per finished question.

        Args:
            gold: As in `pyfast.evaluate`. If it is None and the run has no gold answers, pyfast logs a warning,
                and the table contains no figures.
            metrics: As in `pyfast.evaluate`.
            sources: Whether to return one row per source of an answer instead, as in `pyfast.export`: each passage
                of the evidence, whether or not the answer is based on it.

        Returns:
            The table. `pyfast.export` explains its columns.

        Raises:
            InputError: The run or the given gold cannot be read.

        Example:
            >>> import pyfast
            >>> pyfast.Run("RUN").to_arrow()["answer"][0].as_py()
            'Christiaan Huygens'
        """
        results = results_of(self, str(self.path or "run 1"), gold, metrics, sources)
        schema = schema_of([results])
        return pa.Table.from_batches(rows_of(results, schema), schema)

    def to_pandas(
        self,
        gold: GoldLike | None = None,
        *,
        metrics: Sequence[str | Metric] | None = None,
        sources: bool = False,
    ) -> Any:
        """Return the results as a pandas data frame with one row per finished question.

        Args:
            gold: As in `Run.to_arrow`.
            metrics: As in `pyfast.evaluate`.
            sources: As in `Run.to_arrow`.

        Returns:
            The data frame. `pyfast.export` explains its columns.

        Raises:
            InputError: The run or the given gold cannot be read.
            MissingPackageError: pandas is not installed.

        Example:
            >>> import pyfast
            >>> frame = pyfast.Run("RUN").to_pandas()
            >>> print(frame[["question", "answer", "em"]])
        """
        table = self.to_arrow(gold, metrics=metrics, sources=sources)
        with explained():
            return table.to_pandas()

    def _given(self) -> list[tuple[str, dict[str, Any]]]:
        """Return (place, record) for the questions of a run in memory, if they were mappings or in a file."""
        if self._questions is None:
            return []
        records, place = self._questions.records, self._questions.place
        return list(records() if records else read_question_records(quietly(Path(place))) if place else ())

    def __repr__(self) -> str:
        where = "in memory" if self.path is None else repr(str(self.path))
        return f"<pyfast.Run {where}, {self.status.ended} of {self.status.questions} questions>"


def run_of(run: Run | str | Path) -> Run:
    """Return a run, opening it if it is given as a folder."""
    return run if isinstance(run, Run) else Run(run)


def folder_of(run: Run | str | Path) -> Path | None:
    """Return the folder of a run. None: the run is in memory."""
    return run.path if isinstance(run, Run) else Path(run)


def stored(run: Run | str | Path, lacks: str = "does not keep prompts") -> Path:
    """Return the folder of a run. Raises an `InputError` that says what a run in memory `lacks`."""
    if (folder := folder_of(run)) is None:
        raise InputError(f"a run in memory {lacks}; pass a folder to pyfast.answer as `run`")
    return folder


def report_of(
    run: Run | str | Path,
    gold: Lines,
    metrics: Sequence[str | Metric] | None,
    figures: Sequence[str] = (),
    also: Sequence[Metric] = (),
    by: Sequence[str] = (),
) -> Report:
    """Score the answers of a run, as `pyfast.evaluate` does."""
    answers, where = answers_of(run)
    rows = rows_in(_index_of(folder_of(run), "any row of a gold table counts as evidence"))
    return evaluate(answers, gold, metrics, where, rows, figures, also, by)


def scores_and_gold(
    run: Run | str | Path, gold: GoldLike | None, metrics: Sequence[str | Metric] | None, *, tells: bool = True
) -> tuple[Report, Lines] | None:
    """Score the answers of a run, and return the gold too. If no gold is given and the run has none, log a warning
    (unless `tells` is False), and return None. Raises `InputError` if the given `gold` contains none of the run's
    questions."""
    try:
        lines = gold_of(run, gold)
        return report_of(run, lines, metrics), lines
    except InputError as error:
        if gold is not None or metrics is not None:
            raise
        if tells:
            LOG.warning("%s cannot be scored: %s", folder_of(run) or "the run", error)
        return None


def results_of(
    run: Run | str | Path,
    name: str,
    gold: GoldLike | None,
    metrics: Sequence[str | Metric] | None,
    sources: bool,
    prices: Prices | None = None,
) -> Results:
    """Collect the results of the run called `name` for a table. With `sources`, the table contains one row per
    source. With `prices`, it contains the cost of each question."""
    run = run_of(run)
    scores = scores_and_gold(run, gold, metrics, tells=not sources)
    scored = [] if scores is None else scores[0].questions
    known = {one.id for one in scored}
    golds = [] if scores is None else [one for one in read_gold(scores[1]) if one.id in known]
    answers = {one.id: one.answers for one in golds}
    seconds = {} if run.path is None else {id: used.seconds for id, used in used_by(run.path).items()}
    money = None if prices is None or run.path is None else money_by_id(run.path, prices)
    index = _index_of(run.path, _WITHOUT_INDEX)
    document = _documents_of(index) if sources else None
    own, rows = own_of(run, golds), rows_in(index)
    supporting = {one.id: with_rows(one, rows)[0] for one in golds if sources and one.supporting}
    return Results(name, run.records, texts_of(run), answers, scored, seconds, money, own, document, supporting)


def texts_of(run: Run) -> dict[str, str]:
    """Return the texts of a run's questions, by id."""
    if run.path is not None:
        questions = questions_of(run.path)
    else:
        questions = iter(()) if run._questions is None else run._questions.read()
    return {question.id: question.text for question in questions}


def own_of(run: Run, golds: Iterable[Gold] = ()) -> dict[str, dict[str, Any]]:
    """Read the user's own columns of the question file, and add those of the gold. Log a warning if the question
    file can no longer be read."""
    own = dict[str, dict[str, Any]]()
    try:
        own = own_columns(read_question_records(file_of_questions(run.path)) if run.path else run._given())
    except InputError as error:
        LOG.warning("%s; the question file's own columns are left out", error)
    for id, more in own_columns(("", one.own) for one in golds).items():  # such as `level` in HotpotQA
        own[id] = own.get(id, {}) | more | own.get(id, {})
    return own


def file_of_questions(run: Path) -> Path:
    """Return the file that a run's questions came from. Reading it gives no warnings about columns, because
    `answer` has already given them. Raises the same `InputError` as `recorded_path`."""
    return quietly(recorded_path(run, "gold" if recorded_value(run, "places", "gold") else "questions"))


_WITHOUT_INDEX = "sources are listed without pages and rows, and only with titles that the run has stored"


def _documents_of(index: Callable[[], Index | None]) -> Callable[[str], Document | None]:
    """Return a function that returns documents from a run's index (see `_index_of`). If the index no longer
    exists, the function finds no document."""

    @lru_cache(64)
    def document(uri: str) -> Document | None:
        opened = index()
        try:
            return opened.document(uri) if opened else None
        except KeyError:
            return None

    return document


def questions_of(run: Path) -> Iterator[Question]:
    """Read the questions stored in a run's folder. If there are none, log a warning and return an empty
    iterator."""
    kept = run / QUESTIONS
    if kept.exists():
        return read_questions(kept, count_of(run, read_configuration(run / CONFIGURATION)))
    LOG.warning("%s has no %s; questions are shown by id", run, QUESTIONS)
    return iter(())


def _index_of(run: Path | None, otherwise: str) -> Callable[[], Index | None]:
    """Return a function that opens a run's index, or returns None if the run used none. If the index no longer
    exists, the function logs a warning with `otherwise`, and returns None."""

    @cache
    def index() -> Index | None:
        if run is None or not recorded_value(run, "places", "index"):
            return None
        try:
            opened = index_of(recorded_path(run, "index"), run)
        except InputError as error:
            LOG.warning("%s; %s", error, otherwise)
            return None
        known = recorded_value(run, "index", "corpus")
        if known not in (None, opened.manifest["corpus"]):
            LOG.warning("%s: the documents of this index have changed since the run; %s", opened.folder, otherwise)
            return None
        return opened

    return index


def rows_in(index: Callable[[], Index | None]) -> Rows:
    """Return a function that returns the rows of a table in an index. If there is no index, each document counts
    as a text."""

    @lru_cache(64)
    def rows(uri: str) -> list[str] | None:
        opened = index()
        if opened is None:
            return None
        document = opened.document(uri)
        if isinstance(document, Table):
            return [row_text(" ".join(row)) for row in document.rows]
        if isinstance(document, KnowledgeGraph):
            return [row_text(f"{triple.head} {triple.relation} {triple.tail}") for triple in document.triples]
        return None

    return rows


def answers_of(run: Run | str | Path) -> tuple[Answers, str]:
    """Return a run's answers, and its name for error messages. Raises `InputError` if the folder contains no
    run."""
    path = folder_of(run)
    if path is None:
        assert isinstance(run, Run)
        return run.records, "the run"
    if not (path / ANSWERS).is_file():
        inside = next(iter(sorted(path.glob(f"*/{ANSWERS}"))), None)  # such as the runs in a cell of an experiment
        hint = "" if inside is None else f"; pass a run inside it, such as {inside.parent}"
        raise InputError(f"{path} is not a run folder (it has no {ANSWERS}){hint}")
    if (path / CONFIGURATION).exists():
        read_configuration(path / CONFIGURATION)  # a run in another format is refused
    return path / ANSWERS, str(path)


def gold_of(run: Run | str | Path, gold: GoldLike | None) -> Lines:
    """Return the path of the gold answers, or a list of mappings with them. If `gold` is None, the path is
    gold.jsonl in the same folder as the run's questions or, if there is none, the question file. Raises
    `InputError` if `gold` is None and the run's question file is unknown or does not exist.
    """
    if gold is not None:
        path = folder_of(run)
        of_run = None if path is None else recorded_value(path, "places", COLUMNS)
        return lines_of(gold, json.loads(of_run or "{}"))
    asked = run._questions if isinstance(run, Run) and run.path is None else None
    given = [record for _, record in asked.records()] if asked and asked.records else []
    if gold_field(given):
        return given
    place = own_gold(run)
    if any(one.has_answer or one.supporting or one.supporting_facts for one in read_gold(place)):
        _say_gold(place)
    path = folder_of(run)
    if path is not None and place == file_of_questions(path) != path / QUESTIONS:
        now = {question.id: question.text for question in read_questions(place)}
        if other := sum(now.get(asked.id, asked.text) != asked.text for asked in questions_of(path)):
            told = "%s: the wording of %s differs from that in the run %s; their gold answers may have changed too"
            LOG.warning(told, place, counted(other, "question"), path)
    return place


def lines_of(gold: GoldLike, of_questions: Mapping[str, str] = NO_COLUMNS) -> Lines:
    """Return the path of a gold file, or mappings: those given, or those of a file whose columns have other names.
    `of_questions` are the columns of the question file."""
    columns: Mapping[str, str] = NO_COLUMNS
    match gold:
        case (str() | Path() as file, Mapping() as columns):
            pass
        case str() | Path() as file:
            pass
        case _:
            return list(rows_of_table(gold))
    if not (of_questions or columns):
        return Path(file)
    return [record for _, record in records_of_gold(Path(file), of_questions, columns)]


def own_gold(run: Run | str | Path) -> Path:
    """Return the file with the gold answers to a run's questions. Raises the same `InputError` as `gold_of`."""
    path = folder_of(run)
    if path is None:
        asked = run._questions if isinstance(run, Run) else None
        if asked is None or not asked.place:
            raise InputError("a run in memory has no file with gold answers: pass `gold`")
        place = Path(asked.place)
    else:
        answers_of(run)  # If the folder is not a run, the error is not about gold answers.
        try:
            place = file_of_questions(path)
        except InputError as error:
            raise InputError(f"{error}; pass the gold answers (--gold)") from None
    beside = place.with_name(GOLD)
    return beside if beside.is_file() else place


def warn_of_other_wordings(runs: Sequence[Run | str | Path]) -> None:
    """Log a warning for each run whose questions are worded differently from those of the first run."""
    first: dict[str, str] = {}
    folders = [folder for folder in map(folder_of, runs) if folder is not None and (folder / QUESTIONS).exists()]
    for folder in folders if len(folders) > 1 else ():
        texts = {question.id: question.text for question in questions_of(folder)}
        first = first or texts
        if others := [id for id, text in texts.items() if first.get(id, text) != text]:
            told = "the wording of %s in %s differs from that in %s, but they are compared: %s"
            LOG.warning(told, counted(len(others), "question"), folder, folders[0], some(others))


def warn_of_other_questions(
    runs: Sequence[Run | str | Path], which: str = "each run is scored with its own"
) -> None:
    """Log a warning for each run whose questions or own gold answers differ from those of the first run. `which`
    says which gold answers are used in that case."""
    warn_of_other_wordings(runs)
    answers: dict[str, Any] | None = None
    before = None
    for run in runs if len(runs) > 1 else ():
        try:
            place = own_gold(run)
            own = {} if place == before else {one.id: one.answers for one in read_gold(place)}
        except InputError:  # Without gold, there is nothing to compare; scoring says so.
            continue
        if answers is None:
            answers, before = own, place
        elif others := [id for id, given in own.items() if answers.get(id, given) != given]:
            told = "the gold answers of %s differ from those of %s in %s (%s); %s (choose them with --gold)"
            told_of = (folder_of(run), folder_of(runs[0]), counted(len(others), "question"), some(others))
            LOG.warning(told, *told_of, which)


@lru_cache(256)  # Several runs have the same questions.
def _say_gold(place: Path) -> None:
    LOG.info("the gold answers come from %s", place)


class _Lines(Sequence[Record]):
    """The records in a file, read one by one. Only the position of each line is in memory."""

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
