"""Code that all converters share: the types of the lines that they write, and functions to read published
files."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import unquote

import orjson
from pydantic import BaseModel, BeforeValidator, TypeAdapter, ValidationError

from pyfast.errors import InputError, first_fault
from pyfast.utils.jsonl import parse_json, read_lines

Kind = Literal["document", "question", "gold", "note"]
Piece = tuple[Kind, dict[str, Any]]
"""A line of corpus.jsonl, questions.jsonl or gold.jsonl, with its kind: ("question", {"id": "q1", ...}). Or a
count of parts that are left out: ("note", {"what": "queries are left out", "number": 2})"""
Pieces = Iterator[Piece]
R = TypeVar("R", bound=BaseModel)


def passage(uri: str, title: str | None, text: str) -> Piece:
    """Make the line of a document that is a text."""
    return "document", {"id": uri, "kind": "text", "title": title, "text": text}


def question(id: str, text: str, **more: Any) -> Piece:
    """Make the line of a question."""
    return "question", {"id": id, "question": text, **more}


def gold(id: str, **more: Any) -> Piece:
    """Make the line of the gold of a question."""
    return "gold", {"id": id, **more}


def _text(value: Any) -> Any:
    if value is None:
        return ""
    return str(value) if isinstance(value, int | float) else value


Text = Annotated[str, BeforeValidator(_text)]
"""A text of a published file. Null is an empty text, and a number is its digits"""
OrNull = BeforeValidator(lambda value: () if value is None else value)
"""For a list that can be null in a published file"""


def load(path: Path) -> Any:
    """Read a JSON file. Raises `InputError` if the file cannot be read."""
    try:
        return parse_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except orjson.JSONDecodeError as error:
        raise InputError(f"{path}: not JSON: {error}") from None


def records(path: Path, kind: type[R], content: Any = None) -> Iterator[R]:
    """Read the records of a JSON list: of `content`, or of the file `path` if `content` is None.

    If a record has another layout than `kind`, an `InputError` names the file and the record.
    """
    content = load(path) if content is None else content
    if not isinstance(content, list):
        raise InputError(f"{path}: expected a list of records")
    for number, record in enumerate(content, start=1):
        yield checked(record, kind, f"{path}, record {number}")


def lines(path: Path, kind: type[R]) -> Iterator[R]:
    """Read the records of JSON lines. If a line has another layout than `kind`, an `InputError` names it."""
    return (checked(line, kind, place) for place, line in read_lines(path))


def checked(record: Any, kind: type[R], place: str) -> R:
    """Convert a record of a published set to the type `kind`.

    If the record has another layout than `kind`, an `InputError` says where it is (`place`).
    """
    try:
        return TypeAdapter(kind).validate_python(record)
    except ValidationError as error:
        name, fault = first_fault(error)
        raise InputError(f"{place}: `{name}`: {fault}") from None


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (number, line) for each line of a text that is not blank. Raises `InputError` if the file cannot be
    read."""
    try:
        with path.open(encoding="utf-8-sig", newline="\n") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line.rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None


def one_file(source: Path, pattern: str, what: str) -> Path:
    """Return `source` if it is a file. If it is a folder, return the only file inside it, at any depth, that
    matches the pattern.

    Raises `InputError` if there is no such file, or more than one. In the message, `what` describes the file.
    """
    if source.is_file():
        return source
    is_parent = source.resolve().name == Path(pattern).parent.name  # such as released_data itself
    paths = sorted(source.glob(Path(pattern).name) if is_parent else source.rglob(pattern))
    if len(paths) != 1:
        listed = "none" if not paths else ", ".join(path.name for path in paths[:5])
        raise InputError(f"{source}: expected one file of {what} ({pattern}), found {listed}: pass one of them")
    return paths[0]


def beside(path: Path, pattern: str, what: str) -> Path:
    """Search the three nearest parent folders of a file for a file or folder that matches the pattern. The
    nearest folder comes first.

    Raises `InputError` if nothing matches. In the message, `what` describes what is missing.
    """
    for folder in list(path.resolve().parents)[:3]:
        match = next(iter(sorted(folder.glob(pattern))), None)
        if match is not None:
            return match
    raise InputError(f"{path}: there is no {pattern} in its folder or in a folder above: {what}")


def named(text: str, *more: str) -> str:
    """Return a hash of one or more texts, 16 hexadecimal digits, for use in a uri."""
    return blake2b("\0".join((text, *more)).encode(), digest_size=8).hexdigest()


def title_of(uri: str) -> str:
    """Read the title of a Wikipedia page from its path, such as `/wiki/Titan_(moon)`."""
    return unquote(uri.rpartition("/wiki/")[2]).replace("_", " ")


class Documents:
    """Collects documents that several records share. Each document is written once.

    If two documents with different contents have the same uri, the second gets another uri.
    """

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def place(self, uri: str, content: str) -> tuple[str, bool]:
        """Return the uri of the document with this content, and whether the document is new."""
        digest = named(content)
        number = 1
        name = uri
        while name in self._known and self._known[name] != digest:
            number += 1
            name = f"{uri} ({number})"
        is_new = name not in self._known
        self._known[name] = digest
        return name, is_new

    def passage(self, uri: str, title: str, text: str) -> tuple[str, list[Piece]]:
        """Return the uri of a text, and its line. There is no line if the text is not new."""
        uri, is_new = self.place(uri, text)
        return uri, [passage(uri, title, text)] if is_new else []
