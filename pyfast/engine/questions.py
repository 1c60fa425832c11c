"""Questions in: JSON lines with an `id` and a `question`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path

import orjson

from pyfast.errors import InputError
from pyfast.jsonl import read_lines


@dataclass(frozen=True, slots=True)
class Question:
    """One question."""

    id: str
    text: str


def read_questions(path: Path, limit: int | None = None) -> Iterator[Question]:
    """Stream the questions of a JSONL file, at most `limit`; further keys are ignored, blank lines skipped.

    Raises `InputError`, naming file and line, for a line that is not a JSON object, or that lacks a string `id` or
    a non-empty `question`. That ids differ is for `check_questions` to see: here it would take memory for each.
    """
    return (question for _, question in islice(_read(path), limit))


def _read(path: Path) -> Iterator[tuple[str, Question]]:
    for place, record in read_lines(path):
        question_id, text = record.get("id"), record.get("question")
        if not isinstance(question_id, str) or not question_id:
            raise InputError(f"{place}: needs an `id`, a non-empty string")
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"{place}: needs a `question`, a non-empty string")
        yield place, Question(question_id, text)


def check_questions(path: Path, limit: int | None = None) -> tuple[int, str]:
    """Read the file once: the number of questions, and a digest of them.

    Raises `InputError` as `read_questions` does, and where an id came before, or there is no question at all. A
    pipe is refused: it could not be read a second time.
    """
    if path.exists() and not path.is_dir() and not path.is_file():
        raise InputError(f"{path}: not a regular file; questions are read twice, once to check them")
    digest = blake2b(digest_size=16)
    seen: set[str] = set()
    for place, question in islice(_read(path), limit):
        if question.id in seen:
            raise InputError(f"{place}: the id {question.id!r} came before")
        seen.add(question.id)
        digest.update(orjson.dumps((question.id, question.text)))
    if not seen:
        raise InputError(f"{path}: holds no question")
    return len(seen), digest.hexdigest()
