"""HybridQA and OTT-QA: questions over tables whose cells link to passages of Wikipedia."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    load,
    one_file,
    records,
    title_of,
)

_Cell = tuple[Text, Annotated[tuple[str, ...], OrNull]]


class _Table(BaseModel):
    uid: str | None = None
    title: Text = ""
    section_title: Text = ""
    header: tuple[_Cell | Text, ...]
    data: tuple[tuple[_Cell | Text, ...], ...]


class _Question(BaseModel):
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
        table = checked(record, _Table, place)
        uri = table.uid or name
        links: dict[str, list[str]] = {}
        for r, row in enumerate(table.data):
            for c, cell in enumerate(row):
                if isinstance(cell, tuple) and cell[1]:
                    links[f"{r},{c}"] = [*dict.fromkeys(cell[1])]
        known[uri] = [uri, *dict.fromkeys(to for some in links.values() for to in some)]
        linked |= dict.fromkeys(known[uri])
        yield (
            "document",
            {
                "id": uri,
                "kind": "table",
                "title": table.title,
                "section": table.section_title,
                "header": [_text_of(cell) for cell in table.header],
                "rows": [[_text_of(cell) for cell in row] for row in table.data],
                "links": links,
            },
        )
    written: set[str] = set()
    for some in passages:
        if not isinstance(some, dict):
            raise InputError("request_tok: expected objects that map uris to texts")
        for uri, text in some.items():
            if uri not in written and isinstance(text, str):
                written.add(uri)
                yield "document", {"id": uri, "kind": "text", "title": title_of(uri), "text": text}
    return {table: [uri for uri in uris if uri in written or uri == table] for table, uris in known.items()}


def _text_of(cell: _Cell | str) -> str:
    return cell if isinstance(cell, str) else cell[0]


def _questions(path: Path, links: Mapping[str, list[str]] | None) -> Pieces:
    for one in records(path, _Question):
        asked: dict[str, Any] = {"id": one.id, "question": one.question}
        if links is not None and one.table_id is not None and one.table_id in links:
            asked["documents"] = links[one.table_id]
        yield "question", asked
        if one.answer is not None:
            supporting = [one.table_id] if one.table_id is not None else None
            yield (
                "gold",
                {
                    "id": one.id,
                    "answers": [one.answer],
                    "supporting": supporting,
                    "supporting_facts": one.rows(),
                    "metrics": ["hybridqa", "evidence"],
                },
            )
