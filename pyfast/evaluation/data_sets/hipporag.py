"""HippoRAG's corpora: a list of `{"title", "text"}`, and a file of questions in the layout of 2Wiki, MuSiQue or
HotpotQA."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from pyfast.errors import InputError
from pyfast.evaluation.data_sets.layout import Documents, OrNull, Pieces, Text, checked, load, one_file, records

_CORPUS = "_corpus.json"


class _Passage(BaseModel):
    title: Text
    text: Text


class _Paragraph(BaseModel):
    title: Text
    paragraph_text: Text
    is_supporting: bool = False


class _Record(BaseModel):
    id: Text = ""
    hotpot_id: Text = Field("", alias="_id")
    question: Text
    answer: Text | None = None
    aliases: Annotated[tuple[Text, ...], OrNull] = Field((), alias="answer_aliases")
    type: str | None = None
    context: tuple[tuple[Text, Annotated[tuple[Text, ...], OrNull]], ...] = ()
    supporting_facts: Annotated[tuple[tuple[Text, int], ...], OrNull] = ()
    paragraphs: tuple[_Paragraph, ...] = ()

    def supporting(self) -> list[tuple[str, str]]:
        """Return (title, text) of each gold passage."""
        if self.paragraphs:
            return [(one.title, one.paragraph_text) for one in self.paragraphs if one.is_supporting]
        titles = dict.fromkeys(title for title, _ in self.supporting_facts)
        texts = {title: " ".join(sentences) for title, sentences in self.context}
        return [(title, texts.get(title, "")) for title in titles]


def read(source: Path) -> Pieces:
    """Yield the converted lines of `NAME_corpus.json`, and of `NAME.json` in the same folder. All questions
    share the corpus.
    """
    corpus = one_file(source, f"*{_CORPUS}", "a corpus")
    if not corpus.name.endswith(_CORPUS):
        raise InputError(f"{corpus}: name the corpus, NAME{_CORPUS}; its questions are NAME.json beside it")
    questions = corpus.with_name(corpus.name.removesuffix(_CORPUS) + ".json")
    documents = Documents()
    by_title: dict[str, dict[str, str]] = defaultdict(dict)
    for passage in records(corpus, _Passage):
        uri, is_new = documents.place(passage.title, passage.text)
        if is_new:
            by_title[passage.title][_letters(passage.text)] = uri
            yield "document", {"id": uri, "kind": "text", "title": passage.title, "text": passage.text}
    for number, record in enumerate(_questions(questions), start=1):
        place = f"{questions}, record {number}"
        one = checked(record, _Record, place)
        name = one.id or one.hotpot_id
        if not name:
            raise InputError(f"{place}: it has no `id` and no `_id`")
        yield "question", {"id": name, "question": one.question}
        if one.answer is not None:
            supporting = [_uri(by_title, title, text, place) for title, text in one.supporting()]
            answers = [one.answer, *one.aliases]
            line = {"id": name, "answers": answers, "type": one.type, "supporting": [*dict.fromkeys(supporting)]}
            yield "gold", line


def _questions(path: Path) -> list[Any]:
    content = load(path)
    if not isinstance(content, list):
        raise InputError(f"{path}: expected a list of records")
    return content


def _uri(by_title: dict[str, dict[str, str]], title: str, text: str, place: str) -> str:
    """Return the uri of the passage with this title. If several passages have the title, return the uri of
    the one with this text. (Whitespace does not count.) If none of them has this text, return the uri of the
    first. Raises `InputError` if no passage has the title.
    """
    passages = by_title.get(title)
    if not passages:
        raise InputError(f"{place}: the corpus has no passage {title!r}, which is gold evidence")
    return passages.get(_letters(text)) or next(iter(passages.values()))


def _letters(text: str) -> str:
    return "".join(text.split())
