"""Read documents from JSON, JSON Lines, Parquet and Arrow. docs/formats.md lists the keys of a record. Other keys
of a text are its metadata."""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import orjson

import pyfast.corpus.documents as documents
from pyfast.corpus.documents import Document, KnowledgeGraph, Table, TextDocument, Triple, Unread
from pyfast.corpus.formats.files import check_cells, read_text, refuse_binary
from pyfast.corpus.grids import Packed, pack, runs_of, title_of
from pyfast.errors import InputError
from pyfast.utils.jsonl import parse_as_written, parse_json, read_each_line

JsonObject = Mapping[str, Any]
_TEXTS = ("contents", "content", "body", "passage")
"""The keys that hold the text of a record in other collections"""
_BESIDE_TEXT = frozenset({"id", "_id", "docid", "title", "url", "uri", "metadata"})
_METADATA = ("metadata", "meta")
"""The keys whose object has more metadata of a text"""
_USUAL = frozenset({"kind", "id", "_id", "title", "text"})
_LISTS = frozenset({"data", "documents", "entries", "features", "hits", "items", "records", "results", "rows"})
"""The keys of a list of records beside which there may be objects of any name"""
_ABOUT_LIST = frozenset(
    {"_links", "crs", "error", "errors", "info", "links", "meta", "metadata", "page", "pagination", "schema"}
)
"""The keys of objects that describe a list of records"""
_ABOUT_FILE = frozenset(
    {"attribution", "copyright", "generator", "licence", "license", "message", "name", "status"}
)
"""The keys of texts beside a list of records that are no content of their own"""
_WORDS = re.compile(r"[^\W\d_][^\w\s]{0,3}\s+[^\w\s]{0,3}[^\W\d_]")
_LINE_END = re.compile(r"(?<!\\)((?:\\\\)*)\\[nrtf]")
_QUOTED_LINE = re.compile(r'"([^\n]*)"\n')


def read_jsonl_documents(uri: str, path: Path) -> Iterator[Document | Unread]:
    """Read the documents of a JSON Lines file. Lines that are no documents are rows: together they become one
    table with this `uri`.

    A text, table or graph without an ``id`` gets the uri ``uri#line``: the uri of the file and the line number. A
    line that cannot be read is yielded as an `Unread`.
    """
    refuse_binary(path)
    return documents_of_records(uri, path, read_each_line(path))


def read_json_documents(uri: str, path: Path) -> Iterator[Document | Unread]:
    """Read the documents of a JSON file.

    The file must have a list of records, an object with one such list, or a single record, such as an issue with
    its `body` and its list of labels. If its first line is a record, the file is read as JSON Lines. Any other
    content raises InputError. Beside a list, texts of several words are reported as missing.
    """
    text = read_text(path)
    try:
        content = parse_json(text)
    except orjson.JSONDecodeError as error:
        first: object = None
        with suppress(orjson.JSONDecodeError):
            first = parse_json(text.lstrip().partition("\n")[0])
        if not isinstance(first, dict):
            raise InputError(f"{path}: not JSON: {error}; correct the file") from None
        yield from read_jsonl_documents(uri, path)
        return
    records = _records_in(content)
    if not any(isinstance(record, dict) for record in records):
        raise InputError(f"{path}: expected a JSON object, or a list of objects")
    if any(isinstance(record, dict) and _kind_of(record) is None and _has_float(record) for record in records):
        records = _records_in(parse_as_written(text))
    if (name := _name_of_list(content)) and len(content) > 1:
        other = sorted(content.keys() - {name})
        missing = any(_has_words(content[key]) for key in other if key not in _ABOUT_LIST | _ABOUT_FILE)
        what = f"only the list {name!r} is read; other keys of the file: {', '.join(other)[:200]}"
        yield Unread(path, what, missing)
    read = (it if isinstance(it, dict) else InputError("not a JSON object") for it in records)
    placed = ((f"{path}, record {number}", it, b"") for number, it in enumerate(read, start=1))
    yield from documents_of_records(uri, path, placed)


def _records_in(content: object) -> list[Any]:
    """Return the records of a JSON file: its list, the only list of objects in its object, or the object."""
    if isinstance(content, list):
        return content
    name = _name_of_list(content)
    return content[name] if isinstance(content, dict) and name else [content]


def _name_of_list(content: object) -> str:
    """Return the key of the only list of objects in an object. Returns "" if the object is itself a record."""
    if not isinstance(content, dict) or _kind_of(content) is not None:
        return ""
    lists = [
        key
        for key, value in content.items()
        if value and isinstance(value, list) and all(isinstance(it, dict) for it in value)
    ]
    nested = {key for key, value in content.items() if isinstance(value, dict)}
    # A record may have an object and a list too, such as an address and orders.
    if len(lists) != 1 or not (lists[0] in _LISTS or nested <= _ABOUT_LIST):
        return ""
    said = [value for key in _TEXTS if isinstance(value := content.get(key), str) and value.strip()]
    is_record = said and (lists[0] not in _LISTS or any(map(_has_words, said)))
    # As a record, a passage with its questions and answers would put the answers into an index.
    return "" if is_record and not any(map(_is_question, content[lists[0]])) else lists[0]


def _has_float(value: object) -> bool:
    """Whether a value is or contains a float or a long integer, which may differ from what is written in the
    file."""
    return any(
        isinstance(one, float) or (isinstance(one, int) and abs(one) >= 10**17) for one in _values_in(value)
    )


def _has_words(value: object) -> bool:
    """Whether a value is or contains a text of several words."""
    return any(isinstance(one, str) and _WORDS.search(one) for one in _values_in(value))


def _values_in(value: object) -> Iterator[object]:
    inside = [value]
    while inside:
        one = inside.pop()
        if isinstance(one, dict | list):
            inside.extend(one.values() if isinstance(one, dict) else one)
        else:
            yield one


def documents_of_records(
    uri: str, path: Path, placed: Iterable[tuple[str, JsonObject | InputError, bytes]]
) -> Iterator[Document | Unread]:
    """Make documents from records.

    `placed` yields (place, record, line). A place is a string such as "FILE, line 3". An error stands for a record
    that cannot be read. The line is what the record was parsed from, or empty if there is no such line.

    The uri of a document without an ``id`` ends with the last word of its place, such as ``uri#3``. Records that
    are no documents are rows: together they become one table with this `uri`. A record that cannot be used is
    yielded as an `Unread`, and so are all questions and gold answers together.
    """
    flat: Packed[dict[str, str]] = Packed()
    numbers = array("q")
    nowhere: dict[str, None] = {}  # the keys of texts that are in no document
    key_of_text = ""
    asked: list[str] = []  # where questions and gold answers are
    for place, record, line in placed:
        where = place.rpartition(", ")[2]
        try:
            if isinstance(record, InputError):
                raise record
            if _kind_of(record) is not None:
                own = not _USUAL.issuperset(record) or isinstance(record.get("id", record.get("_id")), int | float)
                if line and own and _has_float(record):
                    record = parse_as_written(line)
                if "text" not in record and not record.get("kind") and not key_of_text:
                    key_of_text = _key_of_text(record)
                    yield Unread(path, f'"{key_of_text}" is read as the text, from {where} on', missing=False)
                document, about, other = _read(record, f"{uri}#{place.rpartition(' ')[2]}")
                yield document
                nowhere |= dict.fromkeys(other)
                if (about or other) and isinstance(document, TextDocument) and _is_blank(document):
                    keys = _keys([*about, *other])
                    what = "the text is empty, so searches cannot find this record"
                    raise InputError(f"{what}; its other keys are {keys}")
                continue
            if _is_question(record):
                asked.append(where)
                continue
            if line and _has_float(record):
                record = parse_as_written(line)
            flat.append({key: _cell(value) for key, value in record.items()})
            numbers.append(int(place.rpartition(" ")[2]))
        except InputError as error:
            yield Unread(path, f"{where}: {str(error).removeprefix(f'{place}: ')}")
    if asked:
        what = "looks like a question or its gold answers, not a document"
        advice = 'leave it out; if it is a document, write it as {"kind": "text", "title": ..., "text": ...}'
        yield Unread(path, f"{asked[0]}: this {what} ({len(asked)} such in the file): {advice}")
    if nowhere:
        what = f"objects and long values of records are not read: {_keys(sorted(nowhere))}"
        yield Unread(path, what, missing=False)
    if flat:
        header = tuple(dict.fromkeys(key for record in flat for key in record))
        if len(header) * len(flat) > 1_000_000 + 100 * sum(map(len, flat)):
            shape = f"{len(flat)} records with {len(header)} keys"
            raise InputError(f"{path}: {shape}; too few records share a key, so they do not form a table")
        rows = pack(tuple(record.get(key, "") for key in header) for record in flat)
        yield Table(uri, title_of(path), "", header, rows, numbers=runs_of(numbers))


def _is_blank(document: TextDocument) -> bool:
    return not (document.text.strip() or document.title.strip())


def _is_question(record: JsonObject) -> bool:
    """Whether a record is a question, a conversation or gold. Such records would put answers into an index."""
    if isinstance(record.get("turns"), list):
        return True
    answers, named = record.get("answers", record.get("answer")), isinstance(record.get("id"), str)
    asks = isinstance(record.get("question"), str) and (named or answers is not None)
    return asks or (named and isinstance(answers, list))


def document_of(record: Mapping[str, Any], place: str) -> Document:
    """Make the text, table or graph of a record. The uri of the document is its ``id``, or `place` without an
    ``id``.

    A record that is none of the three raises an `InputError`, which names the place.
    """
    try:
        return _read(record, place).document
    except InputError as error:
        raise InputError(f"{place}: {error}") from None


class _Read(NamedTuple):
    """The document of a record, the keys of its metadata, and the keys of values that are in no document."""

    document: Document
    about: Collection[str] = ()
    other: Collection[str] = ()


def _read(record: JsonObject, uri: str) -> _Read:
    kind = _kind_of(record)
    if not isinstance(kind, str) or kind not in _DOCUMENTS:
        raise InputError(f'"kind" is {_shown(kind)}, not one of {", ".join(_DOCUMENTS)}')
    own = _string(record, "_id" if "_id" in record else "id", "")
    document = _DOCUMENTS[kind](own or uri, record)
    about, other = _beside(record)
    return _Read(documents.with_metadata(document, _json(about)) if about else document, about, other)


def _kind_of(record: Mapping[str, Any]) -> object:
    kind = record.get("kind")
    return "text" if kind is None and ("text" in record or _key_of_text(record)) else kind


def _key_of_text(record: Mapping[str, Any]) -> str:
    """Return the key of a record that has its text. Returns "" if it has none.

    Keys other than `text` count only if all remaining keys describe the text; otherwise, the record is a row of a
    table.
    """
    if "text" in record:
        return "text"
    found = [key for key in _TEXTS if key in record]
    return found[0] if len(found) == 1 and _BESIDE_TEXT.issuperset(record.keys() - found) else ""


def _text(uri: str, record: JsonObject) -> Document:
    key = _key_of_text(record) or "text"
    value = record.get(key)
    text = "\n\n".join(_strings(value, f'"{key}"')) if isinstance(value, list) else _string(record, key)
    title = _string(record, "title", "")
    # The layout of FlashRAG and of Pyserini: the first line is the title in quotes.
    if key != "text" and not title and (first := _QUOTED_LINE.match(text)):
        title, text = first[1], text[first.end() :]
    return TextDocument(uri, title, text)


def _beside(record: JsonObject) -> tuple[dict[str, Any], list[str]]:
    """Return the metadata of a document, and the keys of all other values in its record. The metadata is what
    filters read: short values, and lists of them. A record with a `kind` is in pyfast's own layout. Its other
    keys, such as a `role` in gold, must stay out of an index."""
    if _USUAL.issuperset(record):
        return {}, []
    keys = _METADATA if record.get("kind") else record.keys() - _USUAL
    text = _key_of_text(record)
    given = {key: value for key, value in record.items() if key in keys and key != text}
    for key in _METADATA:
        if isinstance(given.get(key), dict):
            given = given.pop(key) | given
    return documents.filterable(given)


def _table(uri: str, record: JsonObject) -> Document:
    header = _strings(record.get("header", []), '"header"')
    rows = tuple(_strings(row, f'row {k} of "rows"') for k, row in enumerate(_list(record, "rows"), 1))
    links = record.get("links") or {}
    if not isinstance(links, dict):
        raise InputError(f'"links" is {_shown(links)}, not an object')
    placed = tuple(
        (*_place(key, rows), to) for key, uris in links.items() for to in _strings(uris, f"link {_shown(key)}")
    )
    title, section = _string(record, "title", ""), _string(record, "section", "")
    return Table(uri, title, section, header, rows, placed)


def _graph(uri: str, record: JsonObject) -> Document:
    triples = []
    for k, fact in enumerate(_list(record, "triples"), start=1):
        if not isinstance(fact, list) or len(fact) not in (3, 4):
            raise InputError(
                f"triple {k} is {_shown(fact)}; expected a list of 3 strings, or 4 if the last is the time"
            )
        known = fact[:3] if fact[3:] == [None] else fact
        triples.append(Triple(*_strings(known, f"triple {k}")))
    return KnowledgeGraph(uri, _string(record, "title", ""), tuple(triples))


_DOCUMENTS: dict[str, Callable[[str, JsonObject], Document]] = {"text": _text, "table": _table, "kg": _graph}


def _string(record: JsonObject, key: str, default: str | None = None) -> str:
    value = record.get(key)
    if key == "_id" and isinstance(value, dict) and value.keys() == {"$oid"}:  # as MongoDB exports it
        value = value["$oid"]
    if value is None:
        value = default
    if key in ("id", "_id") and type(value) in (int, orjson.Fragment) and _json(value).lstrip("-").isdigit():
        return _json(value)
    if not isinstance(value, str):
        raise _unfit(record, key, value, "a string")
    return value


def _list(record: JsonObject, key: str) -> list[Any]:
    value = record.get(key)
    if not isinstance(value, list):
        raise _unfit(record, key, value, "a list")
    return value


def _unfit(record: JsonObject, key: str, value: object, wanted: str) -> InputError:
    return InputError(f'"{key}" is {_shown(value)}, not {wanted}' if key in record else f'there is no "{key}"')


def _strings(value: object, name: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise InputError(f"{name} is {_shown(value)}, not a list of strings")
    for item in value:
        if not isinstance(item, str):
            raise InputError(f"{name} contains {_shown(item)}, which is not a string")
    return tuple(value)


def _place(key: str, rows: tuple[tuple[str, ...], ...]) -> tuple[int, int]:
    """Return (row, column) of the cell that a link's key names. The key has the form "row,column"."""
    row, comma, column = key.partition(",")
    if not (comma and row.isdecimal() and column.isdecimal() and len(key) < 20):
        raise InputError(f'link {_shown(key)} is not of the form "row,column"')
    if int(row) >= len(rows) or int(column) >= len(rows[int(row)]):
        raise InputError(f"link {_shown(key)} points outside the table")
    return int(row), int(column)


def _cell(value: object) -> str:
    if isinstance(value, str):
        return value
    # Only Parquet and Arrow files have floats that are not finite.
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    written = _json(value)
    if written.startswith('"'):  # A date is a text in JSON.
        return str(orjson.loads(written))
    return _LINE_END.sub(r"\1 ", written)  # JSON writes a line end as `\n`: its n would join the next word.


def _keys(keys: Iterable[str]) -> str:
    return ", ".join(map(_shown, keys))[:200]


def _shown(value: object) -> str:
    """Write a value for an error message: as JSON, on one line, cut after 40 characters."""
    shown = _json(value)
    return shown if len(shown) <= 40 else shown[:40] + "..."


def _json(value: object) -> str:
    try:
        return orjson.dumps(value, default=str).decode()
    except TypeError:  # orjson reads deeper nesting than it writes.
        raise InputError("a value is nested too deeply") from None


def read_columnar(uri: str, path: Path) -> Iterator[Document | Unread]:
    """Read the documents of a file. If the rows of the file are not documents, the whole file is one table."""
    no_text: Counter[str] = Counter()
    rows = enumerate(records(path, no_text, with_dates=True), start=1)
    placed = ((f"{path}, row {number}", row, b"") for number, row in rows)
    yield from documents_of_records(uri, path, placed)
    for column, times in no_text.items():
        yield Unread(path, f"column {column}: values left out because they are bytes but not UTF-8: {times}")


def records(path: Path, no_text: Counter[str] | None = None, with_dates: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet or Arrow file (file format, stream format or Feather).

    Values of bytes become strings, and numbers of less than 64 bits keep the digits with which they were written.
    `no_text` counts for each column the values that are bytes but not UTF-8, which become None. `with_dates`:
    values of a timestamp column without a time zone become dates if all of them are midnights.

    Raises `InputError` if the file is damaged or too large.
    """
    import pyarrow as pa

    try:
        dates = _columns_of_dates(path) if with_dates else set[str]()
        for batch in _batches(path):
            yield from _rows(batch, no_text, dates)
    except pa.ArrowException as error:
        raise InputError(f"{path}: {' '.join(str(error).split())}") from error


def _batches(path: Path, of_type: Callable[[Any], bool] | None = None) -> Iterator[Any]:
    """Yield the record batches of a file. Of a Parquet file, only columns `of_type` are read."""
    import pyarrow as pa
    from pyarrow import parquet

    if path.suffix.lower() == ".parquet":
        with parquet.ParquetFile(path) as file:
            check_cells(path, file.metadata.num_rows * file.metadata.num_columns)
            chosen = None if of_type is None else [one.name for one in file.schema_arrow if of_type(one.type)]
            yield from file.iter_batches(4096, columns=chosen) if chosen != [] else ()
        return
    with pa.memory_map(str(path)) as source:
        if source.read(4) == b"FEA1":
            raise InputError(f"{path}: pyfast cannot read Feather version 1; save the file in version 2")
        source.seek(0)
        try:
            file = pa.ipc.open_file(source)
            batches = (file.get_batch(number) for number in range(file.num_record_batches))
        except pa.ArrowInvalid:
            source.seek(0)
            batches = iter(pa.ipc.open_stream(source))
        cells = 0
        for batch in batches:
            cells += batch.num_rows * batch.num_columns
            check_cells(path, cells)
            yield batch


def _columns_of_dates(path: Path) -> set[str]:
    """Return the names of the timestamp columns in which all values are midnights."""
    import pyarrow as pa
    import pyarrow.compute as compute

    def has_no_zone(kind: Any) -> bool:
        return pa.types.is_timestamp(kind) and kind.tz is None

    dates, other = set[str](), set[str]()
    for batch in _batches(path, has_no_zone):
        for field, column in zip(batch.schema, batch.columns, strict=True):
            if has_no_zone(field.type) and field.name not in other:
                is_date = compute.all(compute.equal(column, compute.floor_temporal(column, unit="day"))).as_py()
                (other if is_date is False else dates).add(field.name)
    return dates - other


_NAME_OF_TYPE, _ABOUT_TYPE = b"ARROW:extension:name", b"ARROW:extension:metadata"
# The units of pandas' periods, those of earlier versions included, and NumPy's units that show them as pandas does
_UNITS = {"Y": "Y", "A": "Y", "M": "M", "D": "D", "h": "m", "H": "m", "min": "m", "T": "m", "s": "s", "S": "s"}
_UNITS |= {"ms": "ms", "L": "ms", "us": "us", "U": "us", "ns": "ns", "N": "ns"}
_DAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")


def _period(number: int, freq: str) -> str | int:
    """Write a period of pandas, which is stored as its number from 1970 on, as pandas shows it: `2024-01`. The
    number stays if the frequency is unknown."""
    import numpy as np

    unit, _, anchor = freq.lstrip("0123456789").partition("-")
    if unit == "Q":
        return f"{1970 + number // 4}Q{number % 4 + 1}"
    if unit == "B":
        return str(np.busday_offset(np.datetime64(0, "D"), number))
    if unit == "W" and anchor in _DAYS:  # Day 0 was a Thursday.
        last = np.datetime64(7 * number - (3 - _DAYS.index(anchor)) % 7, "D")
        return f"{last - 6}/{last}"
    if unit not in _UNITS:
        return number
    return str(np.datetime64(number * (60 if unit in "hH" else 1), _UNITS[unit])).replace("T", " ")  # type: ignore


def _rows(batch: Any, no_text: Counter[str] | None, dates: Collection[str]) -> list[dict[str, Any]]:
    import pyarrow.types as kinds

    rows: list[dict[str, Any]] = batch.to_pylist()
    for field in batch.schema:
        name, kind = field.name, field.type
        meta = field.metadata or {}
        if b"pandas.period" in (meta.get(_NAME_OF_TYPE), getattr(kind, "extension_name", "").encode()):
            # Once pandas is imported, Arrow reads the type itself.
            freq = getattr(kind, "freq", None) or orjson.loads(meta[_ABOUT_TYPE])["freq"]
            for row in rows:
                row[name] = None if row[name] is None else _period(row[name], freq)
        elif name in dates:
            for row in rows:
                row[name] = row[name].date() if isinstance(row[name], datetime) else row[name]
        elif kinds.is_float32(kind) or kinds.is_float16(kind):
            for row in rows:
                if row[name] is not None:
                    row[name] = float(str(kind.to_pandas_dtype()(row[name])))
        elif kinds.is_binary(kind) or kinds.is_large_binary(kind) or kinds.is_fixed_size_binary(kind):
            for row in rows:
                try:
                    row[name] = None if row[name] is None else row[name].decode()
                except UnicodeDecodeError:
                    row[name] = None
                    if no_text is not None:
                        no_text[name] += 1
    return rows
