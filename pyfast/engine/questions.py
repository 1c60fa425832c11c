"""Read questions, each with an `id` and a `question`, or conversations, with an `id` and `turns`."""

from __future__ import annotations

import json
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from itertools import groupby, islice, zip_longest
from operator import itemgetter
from pathlib import Path
from textwrap import shorten
from typing import Any

import orjson

from pyfast.corpus.formats.files import refuse_published
from pyfast.engine.question_files import (
    NO_COLUMNS,
    gold_field,
    id_of,
    quietly,
    read_question_records,
    say_made,
    tidy,
)
from pyfast.errors import InputError
from pyfast.utils.files import written_aside
from pyfast.utils.jsonl import in_json
from pyfast.utils.log import LOG

ONLY_NAMED = (
    "for %d of %d questions, only the documents that they list are searched (--documents all: the whole index)"
)


def log_limited(limited: int, total: int) -> None:
    """Log how many of all questions search only the documents that they name."""
    LOG.info(ONLY_NAMED, limited, total)


@dataclass(frozen=True, slots=True)
class Question:
    """One question, or one turn of a conversation.

    Example:
        >>> import pyfast
        >>> pyfast.Question("q1", "Who discovered Titan?").text
        'Who discovered Titan?'
    """

    id: str
    text: str
    conversation: str | None = None
    """The id of the conversation, if the question is a turn. The turns of a conversation follow each other"""
    answers: tuple[str, ...] = ()
    """For a turn: its known answers. In later turns, a system can use the first of them as the answer to this
    turn, in place of its own answer"""
    documents: tuple[str, ...] = ()
    """The uris of the documents that the question may search. Empty: the whole index"""


def read_questions(
    path: Path, limit: int | None = None, columns: Mapping[str, str] = NO_COLUMNS
) -> Iterator[Question]:
    """Read the questions of a file one by one (see `question_files`). Unknown keys and blank lines are ignored.

    To save memory, this function does not check for duplicate ids; `questions_in` does.

    Args:
        path: A file with one question or one conversation per line or row. A question has `id` and `question`; a
            conversation has `id` and `turns`, a list of questions. The optional field `documents`, a list of uris,
            limits a question, a turn or a conversation to these documents.
        limit: The maximum number of questions.
        columns: The column names that differ from pyfast's, by pyfast's names, such as `{"question": "Frage"}`.

    Yields:
        The questions, and each turn of a conversation.

    Raises:
        InputError: A line or a turn is not a JSON object, its `id` is neither a string nor a number, or its
            `question` is not a non-empty string. The message names the file and the line.
    """
    return (question for _, question in islice(_read(path, columns), limit))


def _read(path: Path, columns: Mapping[str, str]) -> Iterator[tuple[str, Question]]:
    refuse_published(path)
    for place, record in read_question_records(path, columns):
        if "turns" not in record and "question" not in {*record, *columns}:
            texts = {str(name): value.strip() for name, value in record.items() if isinstance(value, str)}
            name = max(texts, key=lambda name: (texts[name].endswith("?"), len(texts[name])), default="NAME")
            advice = "name the column of the questions, such as"
            sheet = ", which also chooses the sheet" if path.suffix.lower() == ".xlsx" else ""
            way = f"--column question={shlex.quote(name)} (in Python, columns={{'question': {name!r}}}){sheet}"
            raise InputError(f"{_no_question(record, place)}; {advice} {way}")
        yield from _of_record(record, place)


def _no_question(record: dict[str, Any], place: str) -> str:
    there = ", ".join(str(name) for name, value in record.items() if value not in (None, "", []))
    is_blank = record.get("question") is not None
    has = "" if is_blank else f" (it has: {shorten(there, 200, placeholder=' ...') or 'nothing'})"
    return f"{place}: expected a `question` that is a non-empty string{has}"


def _of_record(record: dict[str, Any], place: str) -> Iterator[tuple[str, Question]]:
    """Yield (place, question) for a question, or for each turn of a conversation."""
    record = tidy(record)
    turns = record.get("turns")
    if turns is None:
        yield place, Question(*_asked(record, place), documents=_documents(record, place))
        return
    conversation = record.get("id")
    if not isinstance(conversation, str) or not conversation:
        raise InputError(f"{place}: expected an `id` that is a string or a whole number")
    if not isinstance(turns, list) or not turns:
        raise InputError(f"{place}: `turns` must be a non-empty list")
    of_all = _documents(record, place)
    for number, turn in enumerate(turns, start=1):
        within = f"{place}, turn {number}"
        if not isinstance(turn, dict):
            raise InputError(f"{within}: not a JSON object")
        answers = turn.get("answers", [])
        if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
            raise InputError(f"{within}: `answers` must be a list of strings")
        documents = _documents(turn, within) or of_all
        yield within, Question(*_asked(turn, within), conversation, tuple(answers), documents)


def _asked(record: dict[str, Any], place: str) -> tuple[str, str]:
    """Return the id and the text of a question or turn."""
    question_id, text = record.get("id"), record.get("question")
    if not isinstance(text, str) or not text.strip():
        raise InputError(_no_question(record, place))
    if not isinstance(question_id, str) or not question_id:
        raise InputError(f"{place}: expected an `id` that is a string or a whole number")
    return question_id, text


def _documents(record: dict[str, Any], place: str) -> tuple[str, ...]:
    """Return the uris of the documents to which a question is limited, or an empty tuple if it is not limited."""
    documents = record.get("documents")
    if documents is None:
        return ()
    if not isinstance(documents, list) or not documents or not all(isinstance(uri, str) for uri in documents):
        raise InputError(f"{place}: `documents` must be a non-empty list of uris")
    return tuple(documents)


@dataclass(frozen=True, slots=True)
class Questions:
    """The questions of a run. They can be read more than once, always in the same order."""

    read: Callable[[], Iterator[Question]]
    """A function that yields the questions, from the first on"""
    count: int
    """The number of questions. Every turn of a conversation is one question"""
    digest: str
    """A digest of everything that a system sees of the questions"""
    place: str = ""
    """The path of the question file, for run.toml. Empty: the questions are only in memory"""
    restricted: bool = True
    """Whether the file's field `documents` limits the questions"""
    limited: int = 0
    """How many questions search only the documents that they name"""
    later: int = 0
    """How many questions are later turns of a conversation"""
    records: Callable[[], Iterator[tuple[str, dict[str, Any]]]] | None = None
    """A function that yields (place, record), with the gold and the asker's own columns, for a file with renamed
    columns or for mappings in memory. None: there are none"""

    def tell_limited(self, tell: Callable[[int, int], None] = log_limited) -> None:
        """If any questions search only the documents that they name, tell how many."""
        if self.limited:
            tell(self.limited, self.count)


def questions_in(path: Path, limit: int | None = None, columns: Mapping[str, str] = NO_COLUMNS) -> Questions:
    """Open the questions of a file. The file is read once to check them.

    Args:
        path: A file that `read_questions` can read, but not a pipe, which cannot be read twice.
        limit: The maximum number of questions.
        columns: As in `read_questions`. If columns are given, `write_questions` writes the file's records under
            pyfast's names.

    Returns:
        The questions, their number and their digest.

    Raises:
        InputError: As in `read_questions`; or an id occurs twice, there is no question, or the file is not a
            regular file.
    """
    if path.exists() and not path.is_dir() and not path.is_file():
        raise InputError(f"{path} must be a regular file, because pyfast reads it twice (first to check it)")
    read, place = partial(read_questions, path, limit, columns), "" if columns else str(path)
    records = partial(read_question_records, path, columns) if columns else None
    asked = islice(_read(path, columns), limit)
    checked = _checked(asked, str(path), Questions(read, 0, "", place, records=records))
    quietly(path)  # A later reading of some of the questions would count these alone.
    return checked


def questions_from(given: Iterable[object], limit: int | None = None) -> Questions:
    """Create questions from strings, mappings with the keys of a line, and `Question` objects.

    Args:
        given: The questions. A question without an id gets one derived from its text, as in a file. A warning says
            how many mappings have no id.
        limit: The maximum number of questions.

    Returns:
        The questions, their number and their digest.

    Raises:
        InputError: As in `questions_in`. The message names the position of the question.

    Example:
        >>> from pyfast.engine import questions_from
        >>> [question.text for question in questions_from(["Who discovered Titan?", "When?"]).read()]
        ['Who discovered Titan?', 'When?']
    """
    mappings: dict[str, tuple[str | None, dict[str, Any]]] = {}
    placed = list(islice(_placed(given, mappings), limit))
    gold = gold_field(record for _, record in mappings.values())
    say_made("the questions", sum(id is not None for id, _ in mappings.values()), len(mappings))

    def records() -> Iterator[tuple[str, dict[str, Any]]]:
        for place, (id, record) in mappings.items():
            # Dates become texts, as in the folder of a run.
            yield place, json.loads(_json(tidy({"id": id, **record}, id, gold=gold)))

    read = partial(map, itemgetter(1), placed)
    return _checked(placed, "the questions", Questions(read, 0, "", records=records if mappings else None))


def sampled(questions: Questions, size: int) -> Questions:
    """Draw a sample of questions: those whose ids have the smallest digests, so that a larger sample contains
    every smaller one. A conversation is drawn as a whole, by the digest of its own id. If the last drawn item is a
    conversation, the sample can have more than `size` questions."""
    groups: dict[tuple[bool, str], list[Question]] = defaultdict(list)
    for question in questions.read():
        groups[question.conversation is None, question.conversation or question.id].append(question)
    ordered = sorted(groups, key=lambda key: blake2b(_json(key), digest_size=16).digest())
    chosen: list[Question] = []
    for key in ordered:
        if len(chosen) >= size:
            break
        chosen += groups[key]
    return replace(questions_from(chosen), records=questions.records)


def unrestricted(questions: Questions) -> Questions:
    """Return the questions without their field `documents`, so that each question searches the whole index."""

    def read() -> Iterator[Question]:
        return (replace(question, documents=()) for question in questions.read())

    asked = (("", question) for question in read())
    whole = _checked(asked, questions.place, replace(questions, read=read, restricted=False))
    return replace(whole, later=questions.later)


def write_questions(questions: Questions, path: Path) -> None:
    """Write questions, as a system sees them, to a file that `read_questions` can read. The file appears only when
    it is complete and synced to disk. If `path` is the `place` of the questions, their `records` are written.

    Args:
        questions: The questions.
        path: The file to write.
    """
    lines = _lines(questions)
    if questions.records is not None and questions.place == str(path):  # They have the gold and own columns.
        full = {record["id"]: record for _, record in questions.records()}
        lines = (full.get(line["id"], line) for line in lines)
    with written_aside(path, durable=True) as aside, aside.open("wb") as file:
        file.writelines(_json(line) + b"\n" for line in lines)


def first_change(before: Iterable[Question], now: Iterable[Question]) -> list[str]:
    """Describe the first question in which two lists differ. Returns an empty list if they are equal."""
    earlier, later = list(before), list(now)
    pairs = ((old, new) for old, new in zip_longest(earlier, later) if old != new)
    for old, new in pairs:
        if old is not None and old.id not in {one.id for one in later}:
            return [f"the question {old.id!r} is missing"]
        if new is not None and new.id not in {one.id for one in earlier}:
            return [f"the question {new.id!r} is new"]
        if new is not None:
            return [f"the question {new.id!r} has {'changed' if old and old.id == new.id else 'moved'}"]
    return []


def line_of(question: Question) -> bytes:
    """Return a question as a line that `read_questions` can read. A turn becomes a single question."""
    return _json(_described(replace(question, conversation=None))) + b"\n"


def by_conversation(questions: Iterable[Question]) -> Iterator[list[Question]]:
    """Group the turns of each conversation, which must follow each other. A single question is a group of its
    own, and is yielded before the next question is read."""
    for conversation, turns in groupby(questions, lambda question: question.conversation):
        if conversation is None:
            yield from ([turn] for turn in turns)
        else:
            yield list(turns)


def _lines(questions: Questions) -> Iterator[dict[str, Any]]:
    for turns in by_conversation(questions.read()):
        conversation, described = turns[0].conversation, list(map(_described, turns))
        yield {"id": conversation, "turns": described} if conversation is not None else described[0]


def _described(question: Question) -> dict[str, Any]:
    """Return the fields of a question or turn in a question file."""
    answers = {} if question.conversation is None else {"answers": question.answers}
    documents = {"documents": question.documents} if question.documents else {}
    return {"id": question.id, "question": question.text, **answers, **documents}


def _json(value: object) -> bytes:
    """Return the value as JSON. Invalid Unicode is escaped, so that only the question with this text fails
    later."""
    try:
        return orjson.dumps(value, default=in_json)
    except TypeError:
        return json.dumps(value, default=in_json).encode()


def _placed(
    given: Iterable[object], mappings: dict[str, tuple[str | None, dict[str, Any]]]
) -> Iterator[tuple[str, Question]]:
    """Apply `read_question` to all questions. Add mappings to `mappings` by place, each with the id made for it
    (None: it has its own)."""
    if isinstance(given, bytes | Mapping):
        raise InputError("questions: expected a question as a string, a list of questions, or a question file")
    seen = Counter[str]()
    for number, it in enumerate(given, start=1):
        if isinstance(it, str):
            it = {"question": it, "id": id_of({"question": it}, seen)}
        elif isinstance(it, Mapping):
            record = {str(name): value for name, value in it.items()}
            id = id_of(record, seen)
            mappings[f"question {number}"] = id, record
            it = record if id is None else {**record, "id": id}
        yield from read_question(it, number)


def read_question(given: object, number: int) -> Iterator[tuple[str, Question]]:
    """Yield (place, question) for a question, or for each turn of a conversation.

    A single question without an id gets `number` as its id. A conversation needs an id.

    Raises `InputError`, which names the place, if the object is neither a question nor a conversation.
    """
    place = f"question {number}"
    if isinstance(given, Question):
        yield place, given
    elif isinstance(given, str):
        yield place, Question(*_asked({"id": str(number), "question": given}, place))
    elif isinstance(given, Mapping):
        record = dict(given)
        has_id = "id" in record or "turns" in record
        yield from _of_record(record if has_id else {"id": str(number), **record}, place)
    else:
        raise InputError(f"{place}: expected a string, a mapping or a Question, got {type(given).__name__}")


def _checked(placed: Iterable[tuple[str, Question]], where: str, questions: Questions) -> Questions:
    """Return `questions` with their number, digest and other counts, computed from their (place, question) pairs.

    Raises `InputError` if an id occurs twice or there is no question.
    """
    digest = blake2b(digest_size=16)
    seen: set[str] = set()
    conversations: set[str] = set()
    current, limited, later = None, 0, 0
    for place, question in placed:
        limited += bool(question.documents)
        if question.id in seen:
            raise InputError(f"{place}: the id {question.id!r} occurs twice")
        seen.add(question.id)
        if question.conversation is None:
            digest.update(_json((question.id, question.text, *question.documents)))
        else:
            begins = question.conversation != current or place.endswith(", turn 1")
            if begins and question.conversation in conversations:
                raise InputError(f"{place}: the conversation {question.conversation!r} occurs twice")
            later += not begins
            conversations.add(question.conversation)
            turn = (question.id, question.text, question.conversation, question.answers, *question.documents)
            digest.update(_json(turn))
        current = question.conversation
    if not seen:
        raise InputError(f"{where}: there is no question")
    return replace(questions, count=len(seen), digest=digest.hexdigest(), limited=limited, later=later)
