"""ConvMix: conversations over Wikipedia and Wikidata.

The published set has no corpus. CONVINSE and EXPLAIGNN, two programs of its authors, write a file
dev_ers.jsonl. It has the conversations with the retrieved evidence of each turn. This evidence can be a
corpus.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel

from pyfast.evaluation.data_sets.layout import Documents, OrNull, Pieces, Text, lines, named, one_file, records


class _Named(BaseModel):
    id: Text
    label: Text = ""


class _Evidence(BaseModel):
    evidence_text: Text
    retrieved_for_entity: _Named


class _Turn(BaseModel):
    question_id: Text
    question: Text
    answers: Annotated[tuple[_Named, ...], OrNull] = ()
    answer_text: str | None = None
    answer_src: str | None = None
    completed: str | None = None
    entities: Annotated[tuple[_Named, ...], OrNull] = ()
    top_evidences: Annotated[tuple[_Evidence, ...], OrNull] = ()


class _Record(BaseModel):
    conv_id: int | str
    domain: str | None = None
    questions: tuple[_Turn, ...]


def convmix(source: Path) -> Pieces:
    """Yield the converted lines of dev_set.json or dev_ers.jsonl. The corpus is made from the evidence, which
    only dev_ers.jsonl has.

    The first accepted answer of a turn is the text that a crowd worker wrote. Each piece of evidence becomes a
    document. Its title is the entity for which the evidence was retrieved.
    """
    documents = Documents()
    path = one_file(source, "*.json*", "conversations")
    for record in (lines if path.suffix == ".jsonl" else records)(path, _Record):
        for evidence in (one for turn in record.questions for one in turn.top_evidences):
            about, text = evidence.retrieved_for_entity, evidence.evidence_text
            yield from documents.passage(f"{about.id}/{named(text)}", about.label, text)[1]
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
    return [*dict.fromkeys([*written, *(one.label for one in turn.answers if one.label)])]
