"""`pyfast index`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pyfast.commands.terminal import console, plain


def index(
    sources: Annotated[list[Path], typer.Argument(help="Files or folders; docs/formats.md has the formats.")],
    out: Annotated[Path, typer.Option(help="The folder to make.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an index that is there.")] = False,
    reader: Annotated[
        list[str] | None, typer.Option(help="A reader of another format, MODULE:NAME; repeatable.")
    ] = None,
    columns: Annotated[
        int, typer.Option(min=2, help="Cut a table of more columns into several; each keeps the first column.")
    ] = 64,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first file that cannot be read.")] = False,
) -> None:
    """Build the index of a corpus. What cannot be read is listed at the end, with the reason."""
    import pyfast
    from pyfast.corpus import Unread

    unread: list[Unread] = []
    try:
        with console().status("reading and indexing"):
            facts = pyfast.build_index(
                sources,
                out,
                overwrite=overwrite,
                readers=reader or (),
                columns=columns,
                strict=strict,
                on_unread=unread.append,
            ).manifest
    finally:
        for it in unread:
            print(f"pyfast: left out {plain(it)}", file=sys.stderr)
    print(f"{out}: {facts['documents']} documents, {facts['passages']} passages, {facts['terms']} terms")
