"""`pyfast check`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pyfast.commands.terminal import pairs, plain

if TYPE_CHECKING:
    from pyfast.conformance import CheckResult


def check(
    system: Annotated[str, typer.Argument(help="A system, or MODULE:NAME.")],
    index: Annotated[
        Path | None, typer.Option(help="An index; without it, the check makes a small corpus.")
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the system, such as graph=off; repeatable.")
    ] = None,
) -> None:
    """Check that your system keeps pyfast's promises: resume, budgets, bad questions, bad replies."""
    from pyfast.conformance import check_system

    results = check_system(system, index, pairs("--set", setting), on_result=_tell)
    if not all(result.passed for result in results):
        raise typer.Exit(1)


def _tell(result: CheckResult) -> None:
    print(f"{'ok  ' if result.passed else 'FAIL'}  {result.name}: {plain(result.detail)}", flush=True)
