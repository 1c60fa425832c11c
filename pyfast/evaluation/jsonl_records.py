"""Read JSON lines as records of one kind, each with a unique id."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from pyfast.engine.question_files import read_question_records, tidy
from pyfast.errors import InputError, first_fault

Lines = Path | Iterable[Mapping[str, Any]]
"""A file of JSON lines, or mappings, one in place of each line"""


Unfold = Callable[[Mapping[str, Any]], Iterable[Mapping[str, Any]]]


def placed(source: Lines) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (place, object) for each line. The place is the name of the line in error messages."""
    if isinstance(source, Path):
        return read_question_records(source)
    return ((f"record {number}", tidy(line, number, "the gold")) for number, line in enumerate(source, start=1))


class Named(BaseModel):
    """The base class of records. Every record has an id."""

    id: str


L = TypeVar("L", bound=Named)


def read_records(source: Lines, kind: type[L], unfold: Unfold = lambda line: (line,)) -> Iterator[L]:
    """Read the records of a file. `unfold` turns one line into several records.

    If a record is not valid or repeats an id, an `InputError` names the line.
    """
    seen: set[str] = set()
    for place, line in placed(source):
        for one in unfold(line):
            try:
                record = kind.model_validate(one)
            except ValidationError as error:
                name, fault = first_fault(error)
                raise InputError(f"{place}: `{name}`: {fault}") from None
            if record.id in seen:
                raise InputError(f"{place}: the id {record.id!r} came before")
            seen.add(record.id)
            yield record


def name_of(source: Lines) -> str:
    """Return a name of the source for error messages."""
    return str(source) if isinstance(source, Path) else "gold"
