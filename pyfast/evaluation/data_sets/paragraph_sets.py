"""Sets whose questions come with their paragraphs: HotpotQA, 2WikiMultihopQA and MuSiQue. HippoRAG's corpora have
the questions of these sets.

ConvMix: conversations over Wikipedia and Wikidata. The published set has no corpus. CONVINSE and EXPLAIGNN, two
programs of its authors, write a file dev_ers.jsonl. It has the conversations with the retrieved evidence of each
turn. This evidence can be a corpus.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import accumulate
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field

import pyfast.evaluation.data_sets.layout as layout
from pyfast.errors import InputError
from pyfast.evaluation.data_sets.layout import Documents, OrNull, Pieces, Text

_CORPUS = "_corpus.json"
_Sentences = Annotated[tuple[Text, ...], OrNull]


class _HotpotQA(BaseModel):
    id: Text = Field(alias="_id")
    question: Text
    context: tuple[tuple[Text, _Sentences], ...]
    answer: Text | None = None
    aliases: Annotated[tuple[Text, ...], OrNull] = Field((), alias="answer_aliases")
    type: str | None = None
    level: str | None = None
    supporting_facts: tuple[tuple[str, int], ...] | None = None
    evidences: tuple[tuple[str, ...], ...] | None = None


def hotpotqa(source: Path) -> Pieces:
    """Yield the converted lines of a file of HotpotQA or 2WikiMultihopQA. Titles become uris. For a test set
    without answers, there are no gold lines.
    """
    documents = Documents()
    for record in layout.records(layout.one_file(source, "*.json", "questions"), _HotpotQA):
        uris: dict[str, str] = {}
        starts: dict[str, list[int]] = {}
        for title, sentences in record.context:
            joint = "" if any(sentence.startswith(" ") for sentence in sentences) else " "
            uri, new = documents.passage(title, title, joint.join(sentences))
            uris.setdefault(title, uri)  # Facts name a title, and mean its first paragraph.
            starts[uri] = [0, *accumulate(len(sentence) + len(joint) for sentence in sentences[:-1])]
            yield from new
        yield layout.question(record.id, record.question, documents=list(starts))
        if record.answer is not None:
            facts = [(uris.get(title, title), sentence) for title, sentence in record.supporting_facts or ()]
            yield layout.gold(
                record.id,
                answers=[record.answer, *record.aliases],
                type=record.type,
                level=record.level,
                supporting=[*dict.fromkeys(uri for uri, _ in facts)],
                supporting_facts=facts,
                sentence_starts=starts,
                evidences=record.evidences,
                metrics=["hotpotqa" if record.evidences is None else "2wiki"],
            )


class _Paragraph(BaseModel):
    title: Text
    paragraph_text: Text
    is_supporting: bool = False


class _Numbered(_Paragraph):
    idx: int


class _Hop(BaseModel):
    question: Text
    answer: Text
    paragraph_support_idx: int | None = None


class _MuSiQue(BaseModel):
    id: Text
    question: Text
    paragraphs: Annotated[tuple[_Numbered, ...], OrNull] = ()
    answer: str | None = None
    answer_aliases: Annotated[tuple[Text, ...], OrNull] = ()
    answerable: bool = True
    question_decomposition: Annotated[tuple[_Hop, ...], OrNull] = ()


def musique(source: Path) -> Pieces:
    """Yield the converted lines of a file of MuSiQue. The uri of a paragraph is its hash, because several
    paragraphs can have the same title. In MuSiQue-Full, an id stands twice: with paragraphs that suffice, and
    without. `pair` in the gold keeps the two together.
    """
    documents = Documents()
    for record in layout.lines(layout.one_file(source, "*.jsonl", "questions"), _MuSiQue):
        uris: dict[int | None, str] = {}
        for one in record.paragraphs:
            name = layout.named(one.title, one.paragraph_text)
            uris[one.idx], new = documents.passage(name, one.title, one.paragraph_text)
            yield from new
        yield layout.question(record.id, record.question, documents=[*dict.fromkeys(uris.values())])
        if record.answer is not None or not record.answerable:
            yield layout.gold(
                record.id,
                answers=[record.answer, *record.answer_aliases] if record.answerable else None,
                answerable=None if record.answerable else False,
                pair=record.id,
                type=record.id.partition("__")[0],
                supporting=[uris[one.idx] for one in record.paragraphs if one.is_supporting],
                decomposition=[
                    {"question": hop.question, "answer": hop.answer, "doc": uris.get(hop.paragraph_support_idx)}
                    for hop in record.question_decomposition
                ],
                metrics=["musique"],
            )


class _Passage(BaseModel):
    title: Text
    text: Text


class _OfHippoRAG(BaseModel):
    """A question in the layout of 2Wiki, MuSiQue or HotpotQA."""

    id: Text = ""
    hotpot_id: Text = Field("", alias="_id")
    question: Text
    answer: Text | None = None
    aliases: Annotated[tuple[Text, ...], OrNull] = Field((), alias="answer_aliases")
    type: str | None = None
    context: tuple[tuple[Text, _Sentences], ...] = ()
    supporting_facts: Annotated[tuple[tuple[Text, int], ...], OrNull] = ()
    paragraphs: tuple[_Paragraph, ...] = ()

    def supporting(self) -> list[tuple[str, str]]:
        """Return (title, text) of each gold passage."""
        if self.paragraphs:
            return [(one.title, one.paragraph_text) for one in self.paragraphs if one.is_supporting]
        titles = dict.fromkeys(title for title, _ in self.supporting_facts)
        texts = {title: " ".join(sentences) for title, sentences in self.context}
        return [(title, texts.get(title, "")) for title in titles]


def hipporag(source: Path) -> Pieces:
    """Yield the converted lines of `NAME_corpus.json`, a list of `{"title", "text"}`, and of `NAME.json` in the
    same folder. All questions share the corpus.
    """
    corpus = layout.one_file(source, f"*{_CORPUS}", "a corpus")
    if not corpus.name.endswith(_CORPUS):
        raise InputError(f"{corpus}: expected the corpus, NAME{_CORPUS}, with its questions in NAME.json")
    questions = corpus.with_name(corpus.name.removesuffix(_CORPUS) + ".json")
    documents = Documents()
    by_title: dict[str, dict[str, str]] = defaultdict(dict)
    for each in layout.records(corpus, _Passage):
        uri, is_new = documents.place(each.title, each.text)
        if is_new:
            by_title[each.title][_letters(each.text)] = uri
            yield layout.passage(uri, each.title, each.text)
    for number, one in enumerate(layout.records(questions, _OfHippoRAG), start=1):
        place = f"{questions}, record {number}"
        name = one.id or one.hotpot_id
        if not name:
            raise InputError(f"{place}: expected an `id` or an `_id`")
        yield layout.question(name, one.question)
        if one.answer is not None:
            supporting = dict.fromkeys(_uri(by_title, title, text, place) for title, text in one.supporting())
            yield layout.gold(name, answers=[one.answer, *one.aliases], type=one.type, supporting=[*supporting])


def _uri(by_title: dict[str, dict[str, str]], title: str, text: str, place: str) -> str:
    """Return the uri of the passage with this title. If several passages have the title, return the uri of
    the one with this text. (Whitespace does not count.) If none of them has this text, return the uri of the
    first. Raises `InputError` if no passage has the title.
    """
    passages = by_title.get(title)
    if not passages:
        raise InputError(f"{place}: the gold evidence {title!r} is not a passage of the corpus")
    return passages.get(_letters(text)) or next(iter(passages.values()))


def _letters(text: str) -> str:
    return "".join(text.split())


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
    path = layout.one_file(source, "*.json*", "conversations")
    for record in (layout.lines if path.suffix == ".jsonl" else layout.records)(path, _Record):
        for evidence in (one for turn in record.questions for one in turn.top_evidences):
            about, text = evidence.retrieved_for_entity, evidence.evidence_text
            yield from documents.passage(f"{about.id}/{layout.named(text)}", about.label, text)[1]
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
