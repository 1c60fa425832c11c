"""Questions in: JSON lines with an `id` and a `question`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

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
    a non-empty `question`, and for an id that came before.
    """
    return islice(_read(path), limit)


def _read(path: Path) -> Iterator[Question]:
    seen: set[str] = set()
    for place, record in read_lines(path):
        question_id, text = record.get("id"), record.get("question")
        if not isinstance(question_id, str) or not question_id:
            raise InputError(f"{place}: needs an `id`, a non-empty string")
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"{place}: needs a `question`, a non-empty string")
        if question_id in seen:
            raise InputError(f"{place}: the id {question_id!r} came before")
        seen.add(question_id)
        yield Question(question_id, text)


def check_questions(path: Path, limit: int | None = None) -> int:
    """Read the file once; the number of questions. Raises as `read_questions` does, or if there is none.

    A pipe is refused: it could not be read a second time.
    """
    if path.exists() and not path.is_dir() and not path.is_file():
        raise InputError(f"{path}: not a regular file; questions are read twice, once to check them")
    count = sum(1 for _ in read_questions(path, limit))
    if not count:
        raise InputError(f"{path}: holds no question")
    return count
