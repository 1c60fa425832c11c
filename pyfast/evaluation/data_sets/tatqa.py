"""TAT-QA: a table and paragraphs of a financial report, with questions about them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel

from pyfast.evaluation.data_sets.layout import OrNull, Pieces, Text, one_file, records


class _Table(BaseModel):
    uid: str
    table: tuple[tuple[Text, ...], ...]


class _Paragraph(BaseModel):
    uid: str
    order: int
    text: Text


class _Question(BaseModel):
    uid: str
    question: Text
    answer: Any = None
    answer_type: str | None = None
    answer_from: str | None = None
    scale: Text = ""
    derivation: Text = ""
    rel_paragraphs: Annotated[tuple[Text, ...], OrNull] = ()


class _Record(BaseModel):
    table: _Table
    paragraphs: tuple[_Paragraph, ...]
    questions: tuple[_Question, ...]


def read(source: Path) -> Pieces:
    """Yield the converted lines of a file of TAT-QA. All questions of a report share the documents of the
    report.
    """
    for record in records(one_file(source, "*.json", "questions"), _Record):
        header, *rows = record.table.table or ((),)
        yield "document", {"id": record.table.uid, "kind": "table", "header": header, "rows": rows}
        for one in record.paragraphs:
            yield "document", {"id": one.uid, "kind": "text", "text": one.text}
        places = {str(one.order): one.uid for one in record.paragraphs}
        documents = [record.table.uid, *(one.uid for one in record.paragraphs)]
        for asked in record.questions:
            yield "question", {"id": asked.uid, "question": asked.question, "documents": documents}
            if asked.answer_type is None:
                continue
            answers = asked.answer if isinstance(asked.answer, list) else [asked.answer]
            supporting = [places[order] for order in asked.rel_paragraphs if order in places]
            if "table" in (asked.answer_from or ""):
                supporting.insert(0, record.table.uid)
            yield (
                "gold",
                {
                    "id": asked.uid,
                    "answers": [str(answer) for answer in answers if answer is not None],
                    "answer_mode": "all" if asked.answer_type == "multi-span" else "",
                    "type": asked.answer_type,
                    "answer_from": asked.answer_from,
                    "scale": asked.scale,
                    "derivation": asked.derivation,
                    "supporting": supporting,
                    "metrics": ["tatqa", "evidence"],
                },
            )
