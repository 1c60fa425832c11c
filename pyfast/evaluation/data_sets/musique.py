"""MuSiQue: each question with its twenty paragraphs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel

from pyfast.evaluation.data_sets.layout import Documents, OrNull, Pieces, Text, checked, named, one_file
from pyfast.jsonl import read_lines


class _Paragraph(BaseModel):
    idx: int
    title: Text
    paragraph_text: Text
    is_supporting: bool = False


class _Hop(BaseModel):
    question: Text
    answer: Text
    paragraph_support_idx: int | None = None


class _Record(BaseModel):
    id: Text
    question: Text
    paragraphs: Annotated[tuple[_Paragraph, ...], OrNull] = ()
    answer: str | None = None
    answer_aliases: Annotated[tuple[Text, ...], OrNull] = ()
    answerable: bool = True
    question_decomposition: Annotated[tuple[_Hop, ...], OrNull] = ()


def read(source: Path) -> Pieces:
    """Yield the converted lines of a file of MuSiQue. The uri of a paragraph is its hash, because several
    paragraphs can have the same title. In MuSiQue-Full, an id stands twice: with paragraphs that suffice, and
    without. `pair` in the gold keeps the two together.
    """
    documents = Documents()
    for place, line in read_lines(one_file(source, "*.jsonl", "questions")):
        record = checked(line, _Record, place)
        uris: dict[int | None, str] = {}
        for one in record.paragraphs:
            uri, is_new = documents.place(named(one.title, one.paragraph_text), one.paragraph_text)
            uris[one.idx] = uri
            if is_new:
                yield "document", {"id": uri, "kind": "text", "title": one.title, "text": one.paragraph_text}
        yield (
            "question",
            {"id": record.id, "question": record.question, "documents": [*dict.fromkeys(uris.values())]},
        )
        if record.answer is not None or not record.answerable:
            right = [record.answer, *record.answer_aliases] if record.answerable else None
            hops = [
                {"question": hop.question, "answer": hop.answer, "doc": uris.get(hop.paragraph_support_idx)}
                for hop in record.question_decomposition
            ]
            yield (
                "gold",
                {
                    "id": record.id,
                    "answers": right,
                    "answerable": None if record.answerable else False,
                    "pair": record.id,
                    "type": record.id.partition("__")[0],
                    "supporting": [uris[one.idx] for one in record.paragraphs if one.is_supporting],
                    "decomposition": hops,
                    "metrics": ["musique"],
                },
            )
