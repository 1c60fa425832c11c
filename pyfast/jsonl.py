"""Read JSON lines: files of questions, gold answers and documents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from pyfast.errors import InputError


def read_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, object) for each line. The place names the line in error messages, such as
    `questions.jsonl, line 3`. Blank lines and a byte order mark are ignored.

    Raises `InputError` if the file cannot be read, or a line is not UTF-8, not JSON or not an object.
    """
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
                yield place, _json_object(line, place)


def parse_json(content: bytes) -> Any:
    """Parse JSON. `NaN` and `Infinity`, which some libraries write and JSON does not have, become null.

    Raises `orjson.JSONDecodeError` if the content is not JSON.

    Example:
        >>> from pyfast.jsonl import parse_json
        >>> parse_json(b'{"title": NaN}')
        {'title': None}
    """
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        if b"NaN" not in content and b"Infinity" not in content:
            raise
        try:
            return json.loads(content, parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            pass
        raise


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
