"""`pyfast verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pyfast.commands.terminal import plain


def verify(path: Annotated[Path, typer.Argument(help="The folder of a run or an index.")]) -> None:
    """Check whether a run or an index is whole: checksums, and each answer against its journal."""
    import pyfast

    found = pyfast.verify(path)
    for check in found.checks:
        print(f"{'ok  ' if check.passed else 'FAIL'}  {check.name}: {plain(check.detail)}")
    print(found.summary)
    if not found.passed:
        raise typer.Exit(1)
