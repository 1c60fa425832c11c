"""Questions in: JSON lines with an `id` and a `question`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson

from pyfast.errors import InputError


@dataclass(frozen=True, slots=True)
class Question:
    """One question; `ordinal` counts from 0 in the order of the file."""

    ordinal: int
    id: str
    text: str


def read_questions(path: Path, limit: int | None = None) -> Iterator[Question]:
    """Stream the questions of a JSONL file; further keys are ignored, blank lines skipped.

    Raises `InputError`, naming file and line, for a line that is not UTF-8 or not a JSON object, or that lacks a
    string `id` or a non-empty `question`, and for an id that came before.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    seen: set[str] = set()
    with file:
        for number, line in enumerate(file, start=1):
            if limit is not None and len(seen) >= limit:
                return
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if not line.strip():
                continue
            place = f"{path}, line {number}"
            record = _json_object(line, place)
            question_id, text = record.get("id"), record.get("question")
            if not isinstance(question_id, str) or not question_id:
                raise InputError(f"{place}: needs an `id`, a non-empty string")
            if not isinstance(text, str) or not text.strip():
                raise InputError(f"{place}: needs a `question`, a non-empty string")
            if question_id in seen:
                raise InputError(f"{place}: the id {question_id!r} came before")
            seen.add(question_id)
            yield Question(len(seen) - 1, question_id, text)


def _json_object(line: bytes, place: str) -> dict[str, object]:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as broken:
            raise InputError(f"{place}: not UTF-8 (byte {broken.start} of the line)") from None
        raise InputError(f"{place}: not JSON: {error.msg}") from None
    if not isinstance(record, dict):
        raise InputError(f"{place}: not a JSON object")
    return record


def check_questions(path: Path, limit: int | None = None) -> int:
    """Read the whole file once; the number of questions. Raises as `read_questions` does, or if there is none."""
    count = sum(1 for _ in read_questions(path, limit))
    if not count:
        raise InputError(f"{path}: holds no question")
    return count
