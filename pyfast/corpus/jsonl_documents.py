"""Read documents from JSON and JSON Lines. docs/formats.md lists the keys of a record. All other keys are
ignored."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from pyfast.corpus.documents import Document, KnowledgeGraph, Table, TextDocument, Triple
from pyfast.corpus.formats.encodings import read_text
from pyfast.corpus.packed import Packed, pack
from pyfast.errors import GoldError, InputError
from pyfast.jsonl import read_lines

JsonObject = Mapping[str, Any]


class _Fault(Exception):
    """A fault in a record."""


def read_jsonl_documents(uri: str, path: Path, title: str) -> Iterator[Document]:
    """Read the documents of a JSON Lines file. Lines that are no documents are rows: together they become one
    table with this `uri` and `title`.

    A text, table or graph without an ``id`` gets the uri ``uri#line``: the uri of the file and the line number.
    Raises `InputError` for a line that cannot be read, and `GoldError` for a line that is a question or gold.
    """
    return documents_of_records(uri, path, title, read_lines(path))


def read_json_documents(uri: str, path: Path, title: str) -> Iterator[Document]:
    """Read the documents of a JSON file.

    The file must have a list of records, an object whose only value is such a list, or a single record. Any
    other content raises InputError.
    """
    try:
        content = orjson.loads(read_text(path))
    except orjson.JSONDecodeError as error:
        raise InputError(f"{path}: not JSON: {error}; correct the file") from None
    lists = [value for value in content.values() if _is_records(value)] if isinstance(content, dict) else []
    records = (
        lists[0] if len(lists) == 1 and len(content) == 1 else content if isinstance(content, list) else [content]
    )
    if not _is_records(records):
        raise InputError(f"{path}: expected a JSON object, or a list of objects")
    placed = ((f"{path}, record {number}", record) for number, record in enumerate(records, start=1))
    return documents_of_records(uri, path, title, placed)


def _is_records(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(it, dict) for it in value) and bool(value)


def documents_of_records(
    uri: str, path: Path, title: str, placed: Iterable[tuple[str, JsonObject]]
) -> Iterator[Document]:
    """Make documents from records.

    `placed` has pairs (place, record). A place is a text such as "FILE, line 3". The uri of a document without an
    ``id`` ends with the last word of its place, such as ``uri#3``. Records that are no documents are rows:
    together they become one table with this `uri` and `title`. A question or gold raises `GoldError`.
    """
    flat: Packed[dict[str, str]] = Packed()
    for place, record in placed:
        if _kind_of(record) is None:
            if _is_question(record):
                raise GoldError(
                    f"{place}: a question, or its gold, and no document: leave {path.name} out, or give the line a"
                    ' "kind" if it is one'
                )
            try:
                flat.append({key: _cell(value) for key, value in record.items()})
            except _Fault as fault:
                raise InputError(f"{path}: {fault}") from None
        else:
            line = place.rpartition(" ")[2]
            yield document_of(record, place, f"{uri}#{line}")
    if flat:
        header = tuple(dict.fromkeys(key for record in flat for key in record))
        if len(header) * len(flat) > 1_000_000 + 100 * sum(map(len, flat)):
            raise InputError(
                f"{path}: {len(flat)} records with {len(header)} keys, too few in common for one table"
            )
        yield Table(uri, title, "", header, pack(tuple(record.get(key, "") for key in header) for record in flat))


def _is_question(record: JsonObject) -> bool:
    """Whether a record is a question, a conversation or gold. Such records would put answers into an index."""
    answers = record.get("answers", record.get("answer"))
    asks = isinstance(record.get("question"), str)
    named = isinstance(record.get("id"), str)
    return (
        isinstance(record.get("turns"), list)
        or (asks and (named or answers is not None))
        or (named and isinstance(answers, list))
    )


def document_of(record: Mapping[str, Any], place: str, uri: str | None = None) -> Document:
    """Make the text, table or graph of a record. The uri of the document is its ``id``. Without an ``id``,
    `uri` is used, or else `place`.

    A record that is none of the three raises an `InputError`, which names the place.
    """
    kind = _kind_of(record)
    try:
        if not isinstance(kind, str) or kind not in _DOCUMENTS:
            raise _Fault(f'"kind" is {_shown(kind)}, not one of {", ".join(_DOCUMENTS)}')
        return _DOCUMENTS[kind](_string(record, "id", uri or place), record)
    except _Fault as fault:
        raise InputError(f"{place}: {fault}") from None


def _kind_of(record: Mapping[str, Any]) -> object:
    return "text" if record.get("kind") is None and "text" in record else record.get("kind")


def _text(uri: str, record: JsonObject) -> TextDocument:
    return TextDocument(uri, _string(record, "title", ""), _string(record, "text"))


def _table(uri: str, record: JsonObject) -> Table:
    header = _strings(record.get("header", []), '"header"')
    rows = tuple(_strings(row, f'row {k} of "rows"') for k, row in enumerate(_list(record, "rows")))
    links = record.get("links") or {}
    if not isinstance(links, dict):
        raise _Fault(f'"links" is {_shown(links)}, not an object')
    placed = tuple(
        (*_place(key, rows), to) for key, uris in links.items() for to in _strings(uris, f"link {_shown(key)}")
    )
    return Table(uri, _string(record, "title", ""), _string(record, "section", ""), header, rows, placed)


def _graph(uri: str, record: JsonObject) -> KnowledgeGraph:
    triples = []
    for k, fact in enumerate(_list(record, "triples")):
        if not isinstance(fact, list) or len(fact) not in (3, 4):
            raise _Fault(f"triple {k} is {_shown(fact)}, not a list of 3 strings, or 4 with its time")
        known = fact[:3] if fact[3:] == [None] else fact
        triples.append(Triple(*_strings(known, f"triple {k}")))
    return KnowledgeGraph(uri, _string(record, "title", ""), tuple(triples))


_DOCUMENTS: dict[str, Callable[[str, JsonObject], Document]] = {"text": _text, "table": _table, "kg": _graph}


def _string(record: JsonObject, key: str, default: str | None = None) -> str:
    value = record.get(key, default)
    if key == "id" and type(value) is int:
        return str(value)
    if not isinstance(value, str):
        raise _Fault(f'"{key}" is {_shown(value)}, not a string' if key in record else f'there is no "{key}"')
    return value


def _list(record: JsonObject, key: str) -> list[Any]:
    value = record.get(key)
    if not isinstance(value, list):
        raise _Fault(f'"{key}" is {_shown(value)}, not a list' if key in record else f'there is no "{key}"')
    return value


def _strings(value: object, name: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise _Fault(f"{name} is {_shown(value)}, not a list of strings")
    for item in value:
        if not isinstance(item, str):
            raise _Fault(f"{name} holds {_shown(item)}, not only strings")
    return tuple(value)


def _place(key: str, rows: tuple[tuple[str, ...], ...]) -> tuple[int, int]:
    """Return (row, column) of the cell that the key of a link names. The key is a text "row,column"."""
    row, comma, column = key.partition(",")
    if not (comma and row.isdecimal() and column.isdecimal() and len(key) < 20):
        raise _Fault(f'link {_shown(key)} is not of the form "row,column"')
    if int(row) >= len(rows) or int(column) >= len(rows[int(row)]):
        raise _Fault(f"link {_shown(key)} is not in the table")
    return int(row), int(column)


def _cell(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else _json(value)


def _shown(value: object) -> str:
    """Write a value for an error message: as JSON, on one line, cut after 40 characters."""
    shown = _json(value)
    return shown if len(shown) <= 40 else shown[:40] + "..."


def _json(value: object) -> str:
    try:
        return orjson.dumps(value, default=str).decode()
    except TypeError:  # orjson reads deeper nesting than it writes.
        raise _Fault("a value is nested too deeply") from None
