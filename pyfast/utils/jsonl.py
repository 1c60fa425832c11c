"""Read JSON lines: files of questions, gold answers and documents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson

from pyfast.errors import InputError

_DIGITS = 18


def read_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, object) for each line. The place names the line in error messages, such as
    `questions.jsonl, line 3`. Blank lines and a byte order mark are ignored.

    Raises `InputError` if the file cannot be read, or a line is not UTF-8, not JSON or not an object.
    """
    for place, record, _ in read_each_line(path):
        if isinstance(record, InputError):
            raise record
        yield place, record


def read_each_line(path: Path) -> Iterator[tuple[str, dict[str, Any] | InputError, bytes]]:
    """Yield (place, object, line) as `read_lines` does, with the error in place of an object that cannot be
    read."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    with file:
        for number, line in enumerate(file, start=1):
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if line and not line.isspace():
                place = f"{path}, line {number}"
                try:
                    yield place, _json_object(line, place), line
                except InputError as error:
                    yield place, error, line


def in_json(value: object) -> Any:
    """Return the JSON form of a value for which JSON has no type: a float for a decimal, a list or number for a
    NumPy value, and a string for anything else."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return float(value) if isinstance(value, Decimal) else str(value)


def parse_json(data: bytes | str) -> Any:
    """Parse a JSON text. `NaN` and `Infinity`, which Python writes although JSON does not have them, become None.

    Raises `orjson.JSONDecodeError` for other faults.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        try:
            parsed = json.loads(data, parse_constant=lambda _: None)
            orjson.dumps(parsed)  # Unlike orjson, `json` reads lone surrogates.
        except (ValueError, TypeError, RecursionError):
            raise error from None
        return parsed


def parse_as_written(data: bytes | str) -> Any:
    """Parse a JSON text, but keep fractions, and integers of 18 or more digits, as written, each as an
    `orjson.Fragment`. As numbers, `1.10` would become 1.1, and 12345678901234567890123 would lose digits."""
    return json.loads(data, parse_constant=lambda _: None, parse_float=orjson.Fragment, parse_int=_int)


def _int(digits: str) -> int | orjson.Fragment:
    return int(digits) if len(digits) < _DIGITS else orjson.Fragment(digits)


def _json_object(line: bytes, place: str) -> dict[str, Any]:
    try:
        record = parse_json(line)
    except orjson.JSONDecodeError as error:
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as broken:
            raise InputError(f"{place}: not UTF-8 (byte {broken.start} of the line)") from None
        raise InputError(f"{place}: not JSON: {error.msg} at character {error.pos + 1}") from None
    if not isinstance(record, dict):
        raise InputError(f"{place}: not a JSON object")
    return record
