"""Questions in: JSON lines with an `id` and a `question`, or conversations, with an `id` and `turns` of those."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from pyfast.errors import InputError
from pyfast.jsonl import read_lines


@dataclass(frozen=True, slots=True)
class Question:
    """One question; in a conversation, one turn."""

    id: str
    text: str
    conversation: str | None = None
    """The id of the conversation; its turns follow each other"""
    answers: tuple[str, ...] = ()
    """Of a turn: known answers, for a system that goes on as if the first had been given"""


def read_questions(path: Path, limit: int | None = None) -> Iterator[Question]:
    """Stream the questions of a JSONL file, at most `limit`; further keys are ignored, blank lines skipped.

    Raises `InputError`, naming file and line, for a line that is not a JSON object, or that lacks a string `id` or
    a non-empty `question`; of a line with `turns`, each of them is held to that. That ids differ is for
    `check_questions` to see: here it would take memory for each.
    """
    return (question for _, question in islice(_read(path), limit))


def _read(path: Path) -> Iterator[tuple[str, Question]]:
    for place, record in read_lines(path):
        turns = record.get("turns")
        if turns is None:
            yield place, Question(*_asked(record, place))
            continue
        conversation = record.get("id")
        if not isinstance(conversation, str) or not conversation:
            raise InputError(f"{place}: needs an `id`, a non-empty string")
        if not isinstance(turns, list) or not turns:
            raise InputError(f"{place}: `turns` needs to be a list that is not empty")
        for number, turn in enumerate(turns, start=1):
            within = f"{place}, turn {number}"
            if not isinstance(turn, dict):
                raise InputError(f"{within}: not a JSON object")
            answers = turn.get("answers", [])
            if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
                raise InputError(f"{within}: `answers` needs to be a list of strings")
            yield within, Question(*_asked(turn, within), conversation, tuple(answers))


def _asked(record: dict[str, Any], place: str) -> tuple[str, str]:
    """The id and the text of a question or turn."""
    question_id, text = record.get("id"), record.get("question")
    if not isinstance(question_id, str) or not question_id:
        raise InputError(f"{place}: needs an `id`, a non-empty string")
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"{place}: needs a `question`, a non-empty string")
    return question_id, text


def check_questions(path: Path, limit: int | None = None) -> tuple[int, str]:
    """Read the file once: the number of questions, every turn one, and a digest of them.

    Raises `InputError` as `read_questions` does, and where an id came before, or there is no question at all. A
    pipe is refused: it could not be read a second time.
    """
    if path.exists() and not path.is_dir() and not path.is_file():
        raise InputError(f"{path}: not a regular file; questions are read twice, once to check them")
    digest = blake2b(digest_size=16)
    seen: set[str] = set()
    conversations: set[str] = set()
    for place, question in islice(_read(path), limit):
        if question.id in seen:
            raise InputError(f"{place}: the id {question.id!r} came before")
        seen.add(question.id)
        if question.conversation is None:
            digest.update(orjson.dumps((question.id, question.text)))
            continue
        if place.endswith(", turn 1"):
            if question.conversation in conversations:
                raise InputError(f"{place}: the conversation {question.conversation!r} came before")
            conversations.add(question.conversation)
        digest.update(orjson.dumps((question.id, question.text, question.conversation, question.answers)))
    if not seen:
        raise InputError(f"{path}: holds no question")
    return len(seen), digest.hexdigest()
