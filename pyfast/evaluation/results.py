"""The results of runs as a table, with a row for each question: as Arrow, and as files for other programs."""

from __future__ import annotations

import re
from bisect import bisect_right
from codecs import BOM_UTF8
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from itertools import chain, islice
from math import ceil
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from pyfast.corpus import Document, Table, TextDocument
from pyfast.engine import Evidence, Record
from pyfast.errors import InputError
from pyfast.evaluation.evaluate import AT_ONCE, names_of
from pyfast.evaluation.evidence import is_gold
from pyfast.evaluation.gold import Gold
from pyfast.evaluation.metrics import Scored
from pyfast.utils.extras import explained
from pyfast.utils.files import written_aside
from pyfast.utils.jsonl import in_json

KINDS = (".csv", ".jsonl", ".parquet", ".xlsx")
_TEXTS = pa.list_(pa.string())
_FIRST = {**dict.fromkeys(("run", "id", "question", "answer", "state", "reason"), pa.string()), "gold": _TEXTS}
_COUNTS = ("llm_calls", "prompt_tokens", "completion_tokens")
_LAST = {"uris": _TEXTS, "snippets": _TEXTS, **dict.fromkeys(_COUNTS, pa.int64()), "seconds": pa.float64()}
_SHARED = ("id", "question", "gold")  # what is the same in all runs
_OWN = b"own"  # the key of a column's metadata with its name in the file of questions
_PLACES = {"rank": pa.int64(), "uri": pa.string(), "title": pa.string(), "page": pa.int64(), "sheet": pa.string()}
_SOURCE = {**_PLACES, "row": pa.int64(), "score": pa.float64(), "snippet": pa.string()}
"""What a table with a row for each source has in place of `_LAST`"""
# FILE.xlsx#SHEET, FILE.xlsx#SHEET-table-2 and their parts. FILE.xlsx#table-2 and FILE.xlsx#text-boxes name no
# sheet.
_SHEET = re.compile(
    r"\.xls[xm](?:\.gz|\.zst)?#(?!(?:table-\d+|text-boxes)(?:#|$))(.+?)(?:-table-\d+)?(?:#(?:columns|row)-[^#]*)?$",
    re.I,
)
# XML has no such characters, so a sheet writes them as _x0007_. A text that looks like this is escaped, too.
_ESCAPED = re.compile(r"_(?=x[0-9A-Fa-f]{4}_)|[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_MOST_LETTERS = 16_000  # A cell holds 32,767 units of UTF-16, and a letter is one or two of them.
_MOST_DIGITS = 15  # A sheet rounds a number with more significant digits.
_MOST_ROWS = 1_048_575  # below the header


@dataclass(frozen=True, slots=True)
class Results:
    """What is known about the questions of a run."""

    run: str
    """The name of the run"""
    records: Sequence[Record]
    questions: Mapping[str, str]
    """The texts of the questions, by id"""
    gold: Mapping[str, Sequence[str]]
    """The gold answers, by id"""
    scored: Sequence[Scored]
    seconds: Mapping[str, float | None]
    money: Mapping[str, float] | None = None
    """By id, what the LLM calls of a question cost. None: there is no price list"""
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By id: the asker's own columns of each question (see `own_columns`)"""
    document: Callable[[str], Document | None] | None = None
    """A function that returns the document with a uri. If it is given, the table has a row for each source"""
    supporting: Mapping[str, Gold] = field(default_factory=dict)
    """By id: the gold of questions with gold documents. With `document`, the table says which sources are gold"""


def schema_of(results: Sequence[Results]) -> pa.Schema:
    """Make the schema of a table of several runs. Each figure is a column. If a figure has the name of another
    column, the column is called `score.NAME`, and a column of the asker's own `question.NAME`."""
    last = _SOURCE if any(one.document for one in results) else _LAST
    last = last | ({"is_gold": pa.bool_()} if any(one.supporting for one in results) else {})
    figures = {_column(name, last): pa.float64() for one in results for name in names_of(one.scored)}
    known: dict[str, pa.DataType] = _FIRST | figures | last
    known |= {"money": pa.float64()} if any(one.money is not None for one in results) else {}
    own = own_fields([row for one in results for row in one.own.values()], known)
    fields = [pa.field(*one) for one in known.items()]
    return pa.schema([*fields[:3], *own, *fields[3:]])


def own_fields(rows: Sequence[Mapping[str, Any]], known: Container[str]) -> list[pa.Field]:
    """Make the columns of the asker's own fields. `known` has the names of the table's other columns."""
    return [
        pa.field(
            f"question.{name}" if name in known else name, _type_of([row.get(name) for row in rows])
        ).with_metadata({_OWN: name})
        for name in dict.fromkeys(chain.from_iterable(rows))
    ]


def own_values(row: Mapping[str, Any], columns: Iterable[pa.Field]) -> dict[str, Any]:
    """Return a question's values in the columns that `own_fields` has made."""
    own = dict[str, Any]()
    for column in columns:
        value = row.get(column.metadata[_OWN].decode())
        is_json = column.type == pa.string() and not isinstance(value, str | None)
        value = _with_time(value) if pa.types.is_timestamp(column.type) else value
        own[column.name] = orjson.dumps(value, default=in_json).decode() if is_json else unicode_of(value)
    return own


def _type_of(values: Sequence[Any]) -> pa.DataType:
    if any(isinstance(value, datetime) for value in values):
        values = list(map(_with_time, values))
    with suppress(pa.ArrowException, OverflowError):
        found = pa.array(values).type
        if not (pa.types.is_nested(found) or pa.types.is_null(found)):
            return found
    return pa.string()  # a value that is no text is written as JSON


def _with_time(value: Any) -> Any:
    """Return a date as its midnight. Arrow would drop the times where dates and times stand in one column."""
    return datetime.combine(value, time()) if type(value) is date else value


def _column(figure: str, last: Mapping[str, pa.DataType]) -> str:
    return f"score.{figure}" if figure in (*_FIRST, *last, "money") else figure


def _is_own(column: pa.Field) -> bool:
    return bool(column.metadata) and _OWN in column.metadata


def rows_of(results: Results, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a run, some at a time, so that not all evidence is in memory."""
    figures = {one.id: one.figures for one in results.scored}
    records = iter(results.records)
    while some := list(islice(records, AT_ONCE)):
        rows = list[dict[str, Any]]()
        for one in some:
            own = own_values(results.own.get(one.id, {}), filter(_is_own, schema))
            asked = {"run": results.run, "id": one.id, "question": results.questions.get(one.id)}
            first = own | {name: unicode_of(value) for name, value in {**asked, "answer": one.answer}.items()}
            first |= {"state": one.state, "reason": unicode_of(one.reason), "gold": results.gold.get(one.id)}
            last = _LAST if results.document is None else _SOURCE
            first |= {_column(name, last): value for name, value in figures.get(one.id, {}).items()}
            more = [_row(one, results)] if results.document is None else _sources(one, results, results.document)
            rows += [first | row for row in more]
        yield pa.RecordBatch.from_pylist(rows, schema)


def _sources(
    record: Record, results: Results, document: Callable[[str], Document | None]
) -> Iterator[dict[str, Any]]:
    gold = results.supporting.get(record.id)
    for rank, one in enumerate(record.evidence, start=1):
        found, sheet, first = document(one.uri), _SHEET.search(one.uri), one.offsets[0]
        pages = found.outline.pages if isinstance(found, TextDocument) else ()
        page, row = bisect_right(pages, first) if pages and first >= 0 else None, None
        if isinstance(found, Table):
            page, row = found.page or None, found.number_of(first) if first >= 0 else None
        yield {
            "rank": rank,
            "uri": one.uri,
            "title": one.heading or (found.title if found else None),
            "page": page,
            "sheet": sheet and sheet[1],
            "row": row,
            "score": one.score,
            "snippet": _snippet(one),
            "is_gold": None if gold is None else is_gold(one, gold),
        }


def _snippet(one: Evidence) -> str:
    return one.line if "header" in one.metadata else one.snippet


def unicode_of(text: Any) -> Any:
    """Return a text without lone surrogates. A path or a question in memory can have what is not Unicode."""
    return text.encode("utf-8", "backslashreplace").decode() if isinstance(text, str) else text


def _row(record: Record, results: Results) -> dict[str, Any]:
    return {
        "uris": [one.uri for one in record.evidence],
        "snippets": list(map(_snippet, record.evidence)),
        **{name: getattr(record.usage, name) for name in _COUNTS},
        "seconds": results.seconds.get(record.id),
        **({} if results.money is None else {"money": results.money.get(record.id)}),
    }


def side_by_side(tables: Mapping[str, pa.Table]) -> pa.Table:
    """Join the tables of runs (by the runs' names), so that each question has one row. A run's columns are called
    `RUN: COLUMN`. The runs share the columns of questions, gold answers and the asker's own columns, except those
    in which they differ.
    """
    shared: dict[str, dict[str, Any]] = {}
    schema = next(iter(tables.values())).schema
    names, differ = [one.name for one in schema if one.name in _SHARED or _is_own(one)], set[str]()
    for table in tables.values():
        for row in table.select(names).to_pylist():
            known = shared.setdefault(row["id"], row)
            for name, value in row.items():
                if known[name] is None:
                    known[name] = value
                elif value not in (None, known[name]):
                    differ.add(name)
    names = [name for name in names if name not in differ]
    columns = {name: pa.array([row[name] for row in shared.values()], schema.field(name).type) for name in names}
    places = {}
    for run, table in tables.items():
        found = {id: place for place, id in enumerate(table["id"].to_pylist())}
        places[run] = pa.array([found.get(id) for id in shared], pa.int64())
    for name in schema.names:
        if name not in ("run", *names):
            columns |= {f"{run}: {name}": table[name].take(places[run]) for run, table in tables.items()}
    return pa.table(columns)


def write_results(path: Path, schema: pa.Schema, rows: Iterable[pa.RecordBatch]) -> int:
    """Write rows into a file of the kind that its name says, and return their number. In CSV and XLSX, lists are
    JSON (see `_flat`). In XLSX, a number that a sheet would round is text."""
    import pyarrow.csv as csv
    import pyarrow.parquet as parquet

    kind, count = path.suffix.lower(), 0
    flat = pa.schema([(one.name, pa.string() if pa.types.is_list(one.type) else one.type) for one in schema])
    with written_aside(path) as aside, aside.open("wb") as file:
        if kind == ".xlsx":
            return _write_sheet(path, file, pa.Table.from_batches((_flat(one, flat) for one in rows), flat))
        if kind == ".jsonl":
            for batch in rows:
                count += batch.num_rows
                lines = (orjson.dumps(row, in_json, orjson.OPT_APPEND_NEWLINE) for row in batch.to_pylist())
                file.writelines(lines)
            return count
        if is_csv := kind == ".csv":
            file.write(BOM_UTF8)  # Without this mark, Excel assumes the country's own encoding.
        with csv.CSVWriter(file, flat) if is_csv else parquet.ParquetWriter(file, schema) as writer:
            for batch in rows:
                count += batch.num_rows
                writer.write(_flat(batch, flat) if is_csv else batch)
    return count


def _flat(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Write the lists of a batch as JSON, and a single gold answer as its text."""
    columns = batch.columns
    for at, column in enumerate(columns):
        if pa.types.is_list(column.type):
            is_gold = batch.schema.names[at].rpartition(": ")[2] == "gold"
            columns[at] = pa.array([_in_cell(texts, is_gold) for texts in column.to_pylist()], pa.string())
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _in_cell(texts: list[str] | None, is_gold: bool) -> str | None:
    if texts is None:
        return None
    # Pyfast reads such a text in a file of gold answers as this one answer.
    is_text = is_gold and len(texts) == 1 and not texts[0].lstrip().startswith(("[", "{", "("))
    return texts[0] if is_text else orjson.dumps(texts).decode()


def _write_sheet(path: Path, file: Any, table: pa.Table) -> int:
    if table.num_rows > _MOST_ROWS:
        raise InputError(f"{path}: {table.num_rows:,} rows do not fit into a sheet; use .parquet or .csv")
    with explained():
        import openpyxl
        from openpyxl.cell import WriteOnlyCell
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("results")

    def cell(value: Any) -> Any:
        if isinstance(value, datetime) and value.tzinfo:  # A sheet has no time zones.
            return value.isoformat()
        if isinstance(value, int | Decimal):
            said = f"{Decimal(value):f}"
            value = said if len(re.sub(r"\D", "", said).strip("0")) > _MOST_DIGITS else value
        if not isinstance(value, str):
            return value
        made = WriteOnlyCell(sheet)
        # Assigned to `value`, `=...` would become a formula, and a long text would be cut.
        made._value, made.data_type = _ESCAPED.sub(lambda found: f"_x{ord(found[0]):04X}_", value), "s"
        made.quotePrefix = value.startswith(("=", "+", "-", "@"))  # It stays text when someone edits it.
        return made

    columns: dict[str, list[Any]] = {}
    for name, values in zip(table.column_names, (column.to_pylist() for column in table.columns), strict=True):
        longest = max((len(value) for value in values if isinstance(value, str)), default=0)
        columns[name] = values
        for part in range(ceil(longest / _MOST_LETTERS)):  # too long for one cell: several columns
            start = part * _MOST_LETTERS
            cut = [value and (value[start : start + _MOST_LETTERS] or None) for value in values]
            columns[f"{name} ({part + 1})" if part else name] = cut
    for row in chain([list(columns)], zip(*columns.values(), strict=True)):
        sheet.append([cell(value) for value in row])
    book.save(file)
    return int(table.num_rows)
