"""Read the gold answers and the gold evidence of questions from JSON lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from pyfast.corpus.formats.files import refuse_published
from pyfast.engine.question_files import gold_field, id_of, read_question_records, rows_of_table, say_made, tidy
from pyfast.errors import InputError, first_fault

Lines = Path | Iterable[Mapping[str, Any]]
"""A JSONL file, or a mapping in place of each line"""
Unfold = Callable[[Mapping[str, Any]], Iterable[Mapping[str, Any]]]


class Named(BaseModel):
    """The base class of records. Every record has an id."""

    id: str


L = TypeVar("L", bound=Named)
M = TypeVar("M", bound=BaseModel)


def read_records(source: Lines, kind: type[L], unfold: Unfold = lambda line: (line,)) -> Iterator[L]:
    """Read the records of a file. `unfold` turns one line into several records.

    If a record is not valid or repeats an id, an `InputError` names the line.
    """
    seen: set[str] = set()
    if isinstance(source, Path):
        placed = read_question_records(source)
    else:
        lines = list(rows_of_table(source))
        gold, made = gold_field(lines), Counter[str]()
        ids = [id_of(line, made) for line in lines]
        say_made("the gold", made.total(), len(lines))
        named = enumerate(zip(lines, ids, strict=True), start=1)
        placed = ((f"record {number}", tidy(line, id, "the gold", gold)) for number, (line, id) in named)
    for place, line in placed:
        for one in unfold(line):
            record = checked(one, kind, place)
            if record.id in seen:
                raise InputError(f"{place}: the id {record.id!r} occurs twice")
            seen.add(record.id)
            yield record


def checked(record: Any, kind: type[M], place: str) -> M:
    """Convert a record to the type `kind`. If it has another layout, an `InputError` names the `place`."""
    try:
        return kind.model_validate(record)
    except ValidationError as error:
        name, fault = first_fault(error)
        raise InputError(f"{place}: `{name}`: {fault}") from None


class Gold(Named):
    """The gold answers and gold evidence of one question. `model_extra` has all other keys of the question's
    line."""

    model_config = ConfigDict(frozen=True, extra="allow")

    answers: tuple[str, ...] = ()
    """Accepted forms of one answer. If `answer_mode` is "all": a set of answers, all of which a correct answer
    names"""
    answerable: bool = True
    """False: the documents do not contain the answer, so the system is right if it abstains"""
    pair: str | None = None
    """Shared by the two versions of a question, with and without sufficient documents, as in MuSiQue-Full"""
    answer_mode: Literal["", "any", "all"] = ""
    type: str | None = None
    supporting: tuple[str, ...] | None = None
    """The uris of the gold documents"""
    supporting_facts: tuple[tuple[str, int], ...] | None = None
    """The gold sentences, as pairs (uri, number of the sentence from 0). In a table, the gold rows"""
    supporting_cells: Mapping[str, tuple[str, ...]] = {}
    """For a table or knowledge graph, by uri: texts of cells, entities or relations. A row or triple that contains
    one of them is a gold row"""
    sentence_starts: Mapping[str, tuple[int, ...]] | None = None
    """For each document of the question, by uri: the position of each sentence's first character"""
    published_as: Mapping[str, str | int] = {}
    """How the published file of a data set refers to documents of the question, by uri: in MuSiQue, the number of
    the paragraph; in HotpotQA, the title, if it is not the uri"""
    scale: str | None = None
    """The scale of a numeric answer: thousand, million, billion, percent or empty"""
    metrics: tuple[str, ...] = ()
    """The names of the metrics that the data set uses"""
    domain: str | None = None
    answer_src: str | None = None
    conversation: str | None = None
    """The id of the question's conversation"""
    turn: int | None = None

    by_row: frozenset[str] = frozenset()
    """The gold tables and knowledge graphs in which pyfast finds a row or triple with a gold answer. In the
    evidence, only such a row or triple of them counts"""

    @property
    def own(self) -> dict[str, Any]:
        """The fields that say what kind of question this is, or that pyfast does not read."""
        kinds = self.model_dump(include={"id", "type", "domain"}, exclude_none=True)
        return kinds | (self.model_extra or {})

    @property
    def has_answer(self) -> bool:
        """Whether an answer can be scored: there are gold answers, or the right answer is to abstain."""
        return bool(self.answers) or not self.answerable

    @property
    def answer_type(self) -> str:
        """The type of the first gold answer: `date`, `number` or `string`."""
        return answer_type(self.answers[0]) if self.answers else "string"

    def sentences(self, uri: str, first: int, end: int) -> list[int] | None:
        """Find the sentences of a document that overlap a range of its characters. Returns None if the sentences
        are unknown."""
        starts = (self.sentence_starts or {}).get(uri)
        if not starts or first < 0:
            return None
        ends = (*starts[1:], max(end, starts[-1] + 1))
        return [n for n, (a, b) in enumerate(zip(starts, ends, strict=True)) if a < end and first < b]

    def groups(self, by: Iterable[str] = ()) -> dict[str, str]:
        """Return the groups to which this question belongs, as a mapping such as {"type": "bridge"}. `by` names
        more fields whose values are groups."""
        groups: dict[str, Any] = {"type": self.type}
        if any(value is not None for value in (self.conversation, self.domain, self.answer_src)):
            groups |= {
                "domain": self.domain,
                "source": self.answer_src,
                "answer type": self.answer_type,
                "turn": self.turn,
            }
        values = dict(self) if by else {}
        groups |= {name: values.get(name) for name in by}
        return {key: "(none)" if value in (None, "") else str(value) for key, value in groups.items()}


_MONTH = "(january|february|march|april|may|june|july|august|september|october|november|december)"
_DAY = r"\d{1,2}(st|nd|rd|th)?"
_YEAR = r"\d{3,4}"
_DATE = re.compile(
    rf"(({_DAY} )?{_MONTH},? {_YEAR}|{_MONTH} {_DAY}(,? {_YEAR})?|{_DAY} {_MONTH}|{_YEAR}-\d\d-\d\d|(1\d|20)\d\d)",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"[-+$€£]?\s*[\d.,]*\d\s*%?")


def answer_type(answer: str) -> str:
    """Return the type of an answer: `date`, `number` or `string`. A date is a month with a day or year, an ISO
    date, or a year from 1000 to 2099.
    """
    text = answer.strip()
    if _DATE.fullmatch(text):
        return "date"
    return "number" if _NUMBER.fullmatch(text) else "string"


def read_gold(source: Lines) -> Iterator[Gold]:
    """Read the gold answers of each question, where each turn of a conversation is one question. If a line is not
    valid or repeats an id, an `InputError` names the line."""
    if isinstance(source, Path):
        refuse_published(source)
    return read_records(source, Gold, unfold=_turns)


def _turns(line: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the line itself. For a conversation, yield a line for each turn instead."""
    turns = line.get("turns")
    if not isinstance(turns, list):
        yield line
        return
    for number, turn in enumerate(turns, start=1):
        shared = {"conversation": line.get("id"), "domain": line.get("domain")}
        yield {**shared, **turn, "turn": number} if isinstance(turn, dict) else {}
