"""Read files of questions: JSON lines, CSV, TSV and Parquet. Each line or row has a question or a conversation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from pyfast.corpus.formats.columnar import records
from pyfast.corpus.formats.delimited import dialect_of, rows
from pyfast.corpus.formats.encodings import read_text
from pyfast.jsonl import read_lines

SUFFIXES = (".jsonl", ".ndjson", ".csv", ".tsv", ".parquet", ".arrow", ".feather")


def read_question_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, object) for each line or row that is not empty. The place names the line or row in error
    messages.

    In CSV and TSV, a cell that begins with `[` or `{` is parsed as JSON, for example a list of answers. If it
    is not JSON, it stays text. Raises InputError if a line or row cannot be read.
    """
    suffix = path.suffix.lower()
    if suffix in (".csv", ".tsv"):
        return _of_table(path)
    if suffix in (".parquet", ".arrow", ".feather"):
        given = ({name: value for name, value in row.items() if value is not None} for row in records(path))
        return ((f"{path}, row {number}", row) for number, row in enumerate(given, start=1))
    return read_lines(path)


def _of_table(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    text = read_text(path)
    header: tuple[str, ...] | None = None
    for line, row in rows(path, text, dialect_of(path, text)):
        if header is None:
            header = tuple(name.strip() for name in row)
        else:
            yield (
                f"{path}, line {line}",
                {name: _value(cell) for name, cell in zip(header, row, strict=False) if cell},
            )


def _value(cell: str) -> Any:
    if not cell.startswith(("[", "{")):
        return cell
    try:
        return orjson.loads(cell)
    except orjson.JSONDecodeError:
        return cell


def tidy(record: Mapping[str, Any]) -> dict[str, Any]:
    """Change the fields of a question into the usual form.

    A numeric `id` becomes text, and a single text in `answers` becomes a list.
    """
    fields = dict(record)
    if type(fields.get("id")) is int:
        fields["id"] = str(fields["id"])
    if isinstance(fields.get("answers"), str):
        fields["answers"] = [fields["answers"]]
    if isinstance(fields.get("turns"), list):
        fields["turns"] = [tidy(turn) if isinstance(turn, Mapping) else turn for turn in fields["turns"]]
    return fields


def as_path(given: str) -> Path | None:
    """Return a text as a path, if it names an existing file or has the suffix of a file of questions. Otherwise
    return None."""
    if "\n" in given or len(given) > 4096:
        return None
    path = Path(given)
    if path.suffix.lower() in SUFFIXES and " " not in path.suffix:
        return path
    try:
        return path if path.is_file() else None
    except OSError:
        return None
