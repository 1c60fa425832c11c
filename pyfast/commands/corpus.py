"""`pyfast corpus`: add, update, delete, compact, info."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pyfast.commands.index import Columns, Readers, Strict, exit_if_incomplete, unread_listed
from pyfast.commands.terminal import console, plain

if TYPE_CHECKING:
    from pyfast.retrieval.changing import Change

app = typer.Typer(no_args_is_help=True, help="The documents of an index: add, update and delete them.")

_Index = Annotated[Path, typer.Argument(help="An index, made by `pyfast index`.")]
_Sources = Annotated[list[Path], typer.Argument(help="Files or folders, as in `pyfast index`.")]


@app.command()
def add(
    index: _Index, sources: _Sources, reader: Readers = None, columns: Columns = 64, strict: Strict = False
) -> None:
    """Add documents. For a process that has the index open, nothing changes."""
    from pyfast.api.changing import add_documents

    with unread_listed() as unread, console().status("reading and indexing"):
        change = add_documents(
            index, sources, readers=reader or (), columns=columns, strict=strict, on_unread=unread.append
        )
    _tell(index, change)
    exit_if_incomplete(unread)


@app.command()
def update(
    index: _Index, sources: _Sources, reader: Readers = None, columns: Columns = 64, strict: Strict = False
) -> None:
    """Replace documents by new versions with the same uri, and add new documents. Tables and other parts that a
    file no longer has are deleted."""
    from pyfast.api.changing import update_documents

    with unread_listed() as unread, console().status("reading and indexing"):
        change = update_documents(
            index, sources, readers=reader or (), columns=columns, strict=strict, on_unread=unread.append
        )
    _tell(index, change)
    exit_if_incomplete(unread)


@app.command()
def delete(
    index: _Index,
    uris: Annotated[list[str], typer.Argument(help="The uris of the documents, as evidence names them.")],
) -> None:
    """Delete documents."""
    from pyfast.api.changing import delete_documents

    _tell(index, delete_documents(index, uris))


@app.command()
def compact(
    index: _Index,
    erase: Annotated[
        bool,
        typer.Option(
            "--erase",
            help="Remove earlier commits too, so that no text of a deleted document stays in the parts.",
        ),
    ] = False,
) -> None:
    """Merge all parts of an index into one part, without the deleted documents."""
    from pyfast.api.changing import compact_index

    with console().status("joining the parts"):
        change = compact_index(index, erase=erase)
    _tell(index, change)


@app.command()
def info(index: _Index) -> None:
    """Show the parts, documents and size of an index."""
    from pyfast.api.changing import describe_index

    described = describe_index(index)
    deleted = sum(part.deleted for part in described.parts)
    print(plain(f"{index}: commit {described.commit}, {len(described.commits) - 1} earlier commits"))
    print(f"{described.documents} documents, {described.passages} passages")
    print(f"{len(described.parts)} parts, {deleted} deleted documents in them")
    print(f"{described.size:,} bytes, and {described.kept:,} that only earlier commits need")


def _tell(index: Path, change: Change) -> None:
    names = ("added", "replaced", "deleted", "unchanged")
    counts = [f"{number} {name}" for name in names if (number := getattr(change, name))]
    print(plain(f"{index}: {', '.join(counts) or 'no document changed'}; commit {change.commit}"))
