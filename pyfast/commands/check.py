"""`pyfast check`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pyfast.commands.arguments import pairs
from pyfast.commands.terminal import plain

if TYPE_CHECKING:
    from pyfast.conformance import CheckResult


def check(
    system: Annotated[str, typer.Argument(help="A system, or MODULE:NAME.")],
    index: Annotated[
        Path | None, typer.Option(help="The folder of an index. Without it, the check makes a small index.")
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the system, such as graph=off; repeatable.")
    ] = None,
) -> None:
    """Check that a system can be resumed, keeps its budgets, and survives hostile questions and unusable
    replies.
    """
    from pyfast.conformance import check_system

    results = check_system(system, index, pairs("--set", setting), on_result=_tell)
    failed = [result.name for result in results if not result.passed]
    if failed:
        rest = "; the other checks need this one and did not run" if len(results) == 1 else ""
        print(f"{system} breaks {len(failed)} of pyfast's promises: {', '.join(failed)}{rest}")
        raise typer.Exit(1)
    print(f"{system} keeps all {len(results)} promises")


def _tell(result: CheckResult) -> None:
    print(f"{'ok  ' if result.passed else 'FAIL'}  {result.name}: {plain(result.detail)}", flush=True)
    if result.causes:
        print(f"      likely causes: {result.causes}", flush=True)
