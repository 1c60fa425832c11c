"""`pyfast verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pyfast.commands.terminal import plain


def verify(path: Annotated[Path, typer.Argument(help="The folder of a run or an index.")]) -> None:
    """Check that a run or an index is undamaged: compare checksums, and for a run, compare each answer with the
    journal."""
    import pyfast.api.verifying

    verification = pyfast.api.verifying.verify(path)
    for check in verification.checks:
        print(f"{'ok  ' if check.passed else 'FAIL'}  {check.name}: {plain(check.detail)}")
    print(verification.summary)
    if not verification.passed:
        raise typer.Exit(1)
