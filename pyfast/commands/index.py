"""`pyfast index`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pyfast.commands.terminal import console


def index(
    sources: Annotated[list[Path], typer.Argument(help="Files or folders: .txt .md .csv .tsv .jsonl")],
    out: Annotated[Path, typer.Option(help="The folder to make.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an index that is there.")] = False,
    reader: Annotated[
        list[str] | None, typer.Option(help="A reader of another format, MODULE:NAME; repeatable.")
    ] = None,
) -> None:
    """Build the index of a corpus."""
    import pyfast

    with console().status("reading and indexing"):
        facts = pyfast.build_index(sources, out, overwrite=overwrite, readers=reader or ()).manifest
    print(f"{out}: {facts['documents']} documents, {facts['passages']} passages, {facts['terms']} terms")
