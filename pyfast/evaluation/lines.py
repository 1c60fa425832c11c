"""Lines of JSON as records of one kind, each with an id of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from pyfast.errors import InputError, first_fault
from pyfast.jsonl import read_lines


class Named(BaseModel):
    """What every kind has."""

    id: str


L = TypeVar("L", bound=Named)


def read_records(path: Path, kind: type[L]) -> Iterator[L]:
    """The lines of a file. Raises `InputError`, naming the line, for one of another kind, or with an id twice."""
    seen: set[str] = set()
    for place, line in read_lines(path):
        try:
            record = kind.model_validate(line)
        except ValidationError as error:
            name, fault = first_fault(error)
            raise InputError(f"{place}: `{name}`: {fault}") from None
        if record.id in seen:
            raise InputError(f"{place}: the id {record.id!r} came before")
        seen.add(record.id)
        yield record
