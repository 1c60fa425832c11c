"""`pyfast index`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pyfast.commands.terminal import console


def index(
    sources: Annotated[list[Path], typer.Argument(help="Files or folders: .txt .md .csv .tsv .jsonl")],
    out: Annotated[Path, typer.Option(help="The folder to make.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an index that is there.")] = False,
) -> None:
    """Build the index of a corpus."""
    from pyfast.corpus import read
    from pyfast.retrieval import build_index

    screen = console()
    skipped: list[Path] = []
    with screen.status("reading and indexing"):
        made = build_index(read(sources, skipped=skipped), out, overwrite)
    with screen.status("compiling the search (once per machine, some seconds)"):
        made.search([next(iter(made.vocabulary))], 1)
    for path in skipped:
        print(f"skipped {path}: not a kind of file that is read", file=sys.stderr)
    facts = made.manifest
    print(f"{out}: {facts['documents']} documents, {facts['units']} units to retrieve, {facts['terms']} terms")
