"""HotpotQA and 2WikiMultihopQA: each question has its paragraphs, as lists of sentences."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field

from pyfast.evaluation.data_sets.layout import Documents, OrNull, Pieces, Text, one_file, records


class _Record(BaseModel):
    id: Text = Field(alias="_id")
    question: Text
    context: tuple[tuple[Text, Annotated[tuple[Text, ...], OrNull]], ...]
    answer: Text | None = None
    aliases: Annotated[tuple[Text, ...], OrNull] = Field((), alias="answer_aliases")
    type: str | None = None
    level: str | None = None
    supporting_facts: tuple[tuple[str, int], ...] | None = None
    evidences: tuple[tuple[str, ...], ...] | None = None


def read(source: Path) -> Pieces:
    """Yield the converted lines of a file of HotpotQA or 2WikiMultihopQA. Titles become uris. For a test set
    without answers, there are no gold lines.
    """
    documents = Documents()
    path = one_file(source, "*.json", "questions")
    for record in records(path, _Record):
        own: list[str] = []
        uris: dict[str, str] = {}
        starts: dict[str, list[int]] = {}
        for title, sentences in record.context:
            joint = "" if any(sentence.startswith(" ") for sentence in sentences) else " "
            text = joint.join(sentences)
            uri, is_new = documents.place(title, text)
            own.append(uri)
            uris.setdefault(title, uri)  # Facts name a title, and mean its first paragraph.
            starts[uri] = _starts(sentences, len(joint))
            if is_new:
                yield "document", {"id": uri, "kind": "text", "title": title, "text": text}
        yield (
            "question",
            {"id": record.id, "question": record.question, "documents": [*dict.fromkeys(own)]},
        )
        if record.answer is not None:
            facts = [(uris.get(title, title), sentence) for title, sentence in record.supporting_facts or ()]
            yield (
                "gold",
                {
                    "id": record.id,
                    "answers": [record.answer, *record.aliases],
                    "type": record.type,
                    "level": record.level,
                    "supporting": [*dict.fromkeys(uri for uri, _ in facts)],
                    "supporting_facts": facts,
                    "sentence_starts": starts,
                    "evidences": record.evidences,
                    "metrics": ["hotpotqa"],
                },
            )


def _starts(sentences: Sequence[str], joint: int) -> list[int]:
    return [0, *accumulate(len(sentence) + joint for sentence in sentences[:-1])]
