"""ConvMix: conversations over Wikipedia and Wikidata. The set has no corpus."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from pyfast.evaluation.data_sets.layout import Pieces, one_file, records


class _Named(BaseModel):
    id: str
    label: str


class _Turn(BaseModel):
    question_id: str
    question: str
    answers: tuple[_Named, ...]
    answer_text: str | None = None
    answer_src: str | None = None
    completed: str | None = None
    entities: tuple[_Named, ...] = ()


class _Record(BaseModel):
    conv_id: int | str
    domain: str | None = None
    questions: tuple[_Turn, ...]


def read(source: Path) -> Pieces:
    """Yield the pieces of a file. The first answer of a turn is the crowd worker's."""
    for record in records(one_file(source, "*.json", "conversations"), _Record):
        turns = [(turn, _answers(turn)) for turn in record.questions]
        conversation = {"id": str(record.conv_id), "domain": record.domain}
        asked = [{"id": turn.question_id, "question": turn.question, "answers": right} for turn, right in turns]
        yield "question", {**conversation, "turns": asked}
        right = [
            {
                "id": turn.question_id,
                "answers": right,
                "answer_src": turn.answer_src,
                "answer_ids": [one.id for one in turn.answers],
                "completed": turn.completed or turn.question,
                "entities": [one.model_dump() for one in turn.entities],
            }
            for turn, right in turns
        ]
        yield "gold", {**conversation, "turns": right}


def _answers(turn: _Turn) -> list[str]:
    written = [turn.answer_text] if turn.answer_text else []
    return [*dict.fromkeys([*written, *(one.label for one in turn.answers)])]
