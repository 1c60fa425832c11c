"""Sets of questions over tables. HybridQA and OTT-QA: tables whose cells link to passages of Wikipedia. TAT-QA: a
table and paragraphs of a financial report, with questions about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from pyfast.errors import InputError
from pyfast.evaluation.data_sets.layout import (
    OrNull,
    Pieces,
    Text,
    beside,
    checked,
    gold,
    load,
    one_file,
    passage,
    question,
    records,
    title_of,
)

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
    path = one_file(source, "released_data/*.json", "questions")
    folder = beside(path, "WikiTables-WithLinks", "it holds the tables and passages")
    tables = ((file.stem, load(file), str(file)) for file in sorted((folder / "tables_tok").glob("*.json")))
    passages = (load(file) for file in sorted((folder / "request_tok").glob("*.json")))
    links = yield from _corpus(tables, passages)
    yield from _questions(path, links)


def ottqa(source: Path) -> Pieces:
    """Yield the converted lines of OTT-QA.

    One file has all tables, and another has all passages. The questions are about the whole corpus.
    """
    path = one_file(source, "released_data/*.json", "questions")
    tables = _object(beside(path, "*/*tables*.json", "the tables"))
    passages = _object(beside(path, "*/*request_tok*.json", "the passages"))
    yield from _corpus(((uid, table, f"table {uid}") for uid, table in tables.items()), iter([passages]))
    yield from _questions(path, None)


def _object(path: Path) -> Mapping[str, Any]:
    content = load(path)
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
        table = checked(record, _LinkedTable, place)
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
                yield passage(uri, title_of(uri), text)
    return {table: [uri for uri in uris if uri in written or uri == table] for table, uris in known.items()}


def _texts_of(cells: Iterable[_Cell | str]) -> list[str]:
    return [cell if isinstance(cell, str) else cell[0] for cell in cells]


def _questions(path: Path, links: Mapping[str, list[str]] | None) -> Pieces:
    for one in records(path, _OfTable):
        table = [] if one.table_id is None else [one.table_id]
        yield question(one.id, one.question, documents=next(((links or {}).get(uri) for uri in table), None))
        if one.answer is not None:
            metrics = ["hybridqa", "evidence"]
            facts = one.rows()
            yield gold(
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
    for record in records(one_file(source, "*.json", "questions"), _Report):
        header, *rows = record.table.table or ((),)
        yield "document", {"id": record.table.uid, "kind": "table", "header": header, "rows": rows}
        yield from (passage(one.uid, None, one.text) for one in record.paragraphs)
        places = {str(one.order): one.uid for one in record.paragraphs}
        documents = [record.table.uid, *(one.uid for one in record.paragraphs)]
        for asked in record.questions:
            yield question(asked.uid, asked.question, documents=documents)
            if asked.answer_type is None:
                continue
            answers = asked.answer if isinstance(asked.answer, list) else [asked.answer]
            supporting = [places[order] for order in asked.rel_paragraphs if order in places]
            if "table" in (asked.answer_from or ""):
                supporting.insert(0, record.table.uid)
            yield gold(
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
