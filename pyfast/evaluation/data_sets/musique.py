"""MuSiQue: each question with its twenty paragraphs."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from pyfast.evaluation.data_sets.layout import Documents, Pieces, checked, named, one_file
from pyfast.jsonl import read_lines


class _Paragraph(BaseModel):
    idx: int
    title: str
    paragraph_text: str
    is_supporting: bool = False


class _Hop(BaseModel):
    question: str
    answer: str
    paragraph_support_idx: int | None = None


class _Record(BaseModel):
    id: str
    question: str
    paragraphs: tuple[_Paragraph, ...]
    answer: str | None = None
    answer_aliases: tuple[str, ...] = ()
    answerable: bool = True
    question_decomposition: tuple[_Hop, ...] = ()


def read(source: Path) -> Pieces:
    """Yield the converted lines of a file of MuSiQue. The uri of a paragraph is its hash, because several
    paragraphs can have the same title.
    """
    documents = Documents()
    for place, line in read_lines(one_file(source, "*.jsonl", "questions")):
        record = checked(line, _Record, place)
        uris = {}
        for one in record.paragraphs:
            uri, is_new = documents.place(named(one.title, one.paragraph_text), one.paragraph_text)
            uris[one.idx] = uri
            if is_new and one.paragraph_text.strip():
                yield "document", {"id": uri, "kind": "text", "title": one.title, "text": one.paragraph_text}
        yield (
            "question",
            {"id": record.id, "question": record.question, "documents": [*dict.fromkeys(uris.values())]},
        )
        if record.answer is not None:
            right = [record.answer, *record.answer_aliases] if record.answerable else []
            hops = [
                {"question": hop.question, "answer": hop.answer, "doc": uris.get(hop.paragraph_support_idx or 0)}
                for hop in record.question_decomposition
            ]
            yield (
                "gold",
                {
                    "id": record.id,
                    "answers": right,
                    "type": record.id.partition("__")[0],
                    "supporting": [uris[one.idx] for one in record.paragraphs if one.is_supporting],
                    "decomposition": hops,
                    "metrics": ["musique"],
                },
            )
