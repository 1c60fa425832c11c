"""Sets of questions over tables or a knowledge graph. HybridQA and OTT-QA: tables whose cells link to passages
of Wikipedia. TAT-QA: a table and paragraphs of a financial report, with questions about them. MetaQA: a
knowledge graph of films, and questions with all their answers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

import pyfast.evaluation.data_sets.layout as layout
from pyfast.errors import InputError
from pyfast.evaluation.data_sets.layout import OrNull, Pieces, Text

_Cell = tuple[Text, Annotated[tuple[str, ...], OrNull]]


class _LinkedTable(BaseModel):
    uid: str | None = None
    title: Text = ""
    section_title: Text = ""
    header: tuple[_Cell | Text, ...]
    data: tuple[tuple[_Cell | Text, ...], ...]


class _OfTable(BaseModel):
    id: Text = Field(alias="question_id")
    question: Text
    table_id: str | None = None
    answer: Text | None = Field(None, alias="answer-text")
    nodes: Annotated[tuple[tuple[Any, ...], ...], OrNull] = Field((), alias="answer-node")

    def rows(self) -> list[tuple[str, int]] | None:
        """Return the gold rows of the table. Only the traced files of HybridQA name the cells of the answer."""
        places = [node[1] for node in self.nodes if len(node) > 1 and isinstance(node[1], list) and node[1]]
        return [(self.table_id, row) for row, *_ in places] if places and self.table_id else None


def hybridqa(source: Path) -> Pieces:
    """Yield the converted lines of released_data/*.json, and of the folder WikiTables-WithLinks beside
    released_data.

    The documents of a question are its table, and the passages to which the table links.
    """
    path = layout.one_file(source, "released_data/*.json", "questions")
    folder = layout.beside(path, "WikiTables-WithLinks", "this folder contains the tables and passages")
    tables = ((file.stem, layout.load(file), str(file)) for file in sorted((folder / "tables_tok").glob("*.json")))
    passages = (layout.load(file) for file in sorted((folder / "request_tok").glob("*.json")))
    links = yield from _corpus(tables, passages)
    yield from _questions(path, links)


def ottqa(source: Path) -> Pieces:
    """Yield the converted lines of OTT-QA.

    One file has all tables, and another has all passages. The questions are about the whole corpus.
    """
    path = layout.one_file(source, "released_data/*.json", "questions")
    tables = _object(layout.beside(path, "*/*tables*.json", "the tables"))
    passages = _object(layout.beside(path, "*/*request_tok*.json", "the passages"))
    yield from _corpus(((uid, table, f"table {uid}") for uid, table in tables.items()), iter([passages]))
    yield from _questions(path, None)


def _object(path: Path) -> Mapping[str, Any]:
    content = layout.load(path)
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected an object")
    return content


def _corpus(tables: Iterator[tuple[str, Any, str]], passages: Iterator[Any]) -> Any:
    """Yield the documents. At the end, return a mapping from the uri of each table to a list of uris: the
    table, and the passages to which the table links.

    `tables` has (name, table, place for error messages), and `passages` has mappings from uris to texts.
    """
    known: dict[str, list[str]] = {}
    linked: dict[str, None] = {}
    for name, record, place in tables:
        table = layout.checked(record, _LinkedTable, place)
        uri = table.uid or name
        links: dict[str, list[str]] = {}
        for r, row in enumerate(table.data):
            for c, cell in enumerate(row):
                if isinstance(cell, tuple) and cell[1]:
                    links[f"{r},{c}"] = [*dict.fromkeys(cell[1])]
        known[uri] = [uri, *dict.fromkeys(to for some in links.values() for to in some)]
        linked |= dict.fromkeys(known[uri])
        header, rows = _texts_of(table.header), [_texts_of(row) for row in table.data]
        columns = {"header": header, "rows": rows, "links": links}
        titles = {"title": table.title, "section": table.section_title}
        yield "document", {"id": uri, "kind": "table", **titles, **columns}
    written: set[str] = set()
    for some in passages:
        if not isinstance(some, dict):
            raise InputError("request_tok: expected objects that map uris to texts")
        for uri, text in some.items():
            if uri not in written and isinstance(text, str):
                written.add(uri)
                yield layout.passage(uri, layout.title_of(uri), text)
    return {table: [uri for uri in uris if uri in written or uri == table] for table, uris in known.items()}


def _texts_of(cells: Iterable[_Cell | str]) -> list[str]:
    return [cell if isinstance(cell, str) else cell[0] for cell in cells]


def _questions(path: Path, links: Mapping[str, list[str]] | None) -> Pieces:
    for one in layout.records(path, _OfTable):
        table = [] if one.table_id is None else [one.table_id]
        yield layout.question(
            one.id, one.question, documents=next(((links or {}).get(uri) for uri in table), None)
        )
        if one.answer is not None:
            metrics = ["hybridqa", "evidence"]
            facts = one.rows()
            yield layout.gold(
                one.id, answers=[one.answer], supporting=table or None, supporting_facts=facts, metrics=metrics
            )


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


class _Report(BaseModel):
    table: _Table
    paragraphs: tuple[_Paragraph, ...]
    questions: tuple[_Question, ...]


def tatqa(source: Path) -> Pieces:
    """Yield the converted lines of a file of TAT-QA. All questions of a report share the documents of the
    report.
    """
    for record in layout.records(layout.one_file(source, "*.json", "questions"), _Report):
        header, *rows = record.table.table or ((),)
        yield "document", {"id": record.table.uid, "kind": "table", "header": header, "rows": rows}
        yield from (layout.passage(one.uid, None, one.text) for one in record.paragraphs)
        places = {str(one.order): one.uid for one in record.paragraphs}
        documents = [record.table.uid, *(one.uid for one in record.paragraphs)]
        for asked in record.questions:
            yield layout.question(asked.uid, asked.question, documents=documents)
            if asked.answer_type is None:
                continue
            answers = asked.answer if isinstance(asked.answer, list) else [asked.answer]
            supporting = [places[order] for order in asked.rel_paragraphs if order in places]
            if "table" in (asked.answer_from or ""):
                supporting.insert(0, record.table.uid)
            yield layout.gold(
                asked.uid,
                answers=[str(answer) for answer in answers if answer is not None],
                answer_mode="all" if asked.answer_type == "multi-span" else "",
                type=asked.answer_type,
                answer_from=asked.answer_from,
                scale=asked.scale,
                derivation=asked.derivation,
                supporting=supporting,
                metrics=["tatqa", "evidence"],
            )


_TOPIC = re.compile(r"\[([^\]]*)\]")
_HOPS = re.compile(r"([123])-?hop")


def metaqa(source: Path) -> Pieces:
    """Yield the converted lines of one file of questions, such as qa_test.txt, or of all files `*qa*.txt` in a
    folder.

    kb.txt must be in the folder of the first file, or in one of the two folders above this folder.
    """
    files = [source] if source.is_file() else sorted(source.rglob("*qa*.txt"))
    if not files:
        raise InputError(f"{source}: expected files of questions (*qa*.txt)")
    yield from _graph(layout.beside(files[0], "kb.txt", "the knowledge graph"))
    for path in files:
        hops = _HOPS.search(str(path))
        kind = f"{hops[1]}-hop" if hops else None
        for number, line in layout.text_lines(path):
            marked, tab, answers = line.partition("\t")
            topic = _TOPIC.search(marked)
            if not tab or topic is None:
                raise InputError(
                    f"{path}, line {number}: expected a question with a [topic], a tab, and its answers"
                )
            id = f"{kind or 'metaqa'}-{path.stem}-{number}"
            yield layout.question(id, marked.replace("[", "").replace("]", ""))
            right = answers.split("|")
            yield layout.gold(
                id, answers=right, answer_mode="all", type=kind, topic_entity=topic[1], metrics=["metaqa"]
            )


def _graph(path: Path) -> Pieces:
    """Yield a document for each head in kb.txt: a knowledge graph with all triples of the head."""
    triples = []
    for number, line in layout.text_lines(path):
        triple = line.split("|")
        if len(triple) != 3:
            raise InputError(f"{path}, line {number}: expected head|relation|tail")
        triples.append(triple)
    triples.sort(key=lambda triple: triple[0])  # The sort is stable, so triples of one head keep their order.
    for head, some in groupby(triples, key=lambda triple: triple[0]):
        yield "document", {"id": f"kb/{head}", "kind": "kg", "title": head, "triples": list(some)}
