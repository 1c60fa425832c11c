"""`pyfast check`, `pyfast verify` and `pyfast doctor`: check a system, a folder and this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pyfast.commands.arguments import pairs, with_options
from pyfast.commands.terminal import plain, say, show_table
from pyfast.utils.options import Option

if TYPE_CHECKING:
    from pyfast.api.conformance import CheckResult


@with_options
def check(
    system: str, *, index: Path | None = None, setting: Annotated[list[str] | None, Option(flag="--set")] = None
) -> None:
    """Check that a system can be resumed, stays within its budgets, and survives hostile questions and unusable
    replies.

    Args:
        system: A system, or MODULE:NAME.
        index: The folder of an index. Without it, the check builds a small index.
        setting: A setting of the system, such as graph=off; repeatable.
    """
    from pyfast.api.conformance import check_system

    results = check_system(system, index, pairs("--set", setting), on_result=_tell)
    failed = [result.name for result in results if not result.passed]
    if failed:
        rest = "; the remaining checks depend on it and were skipped" if len(results) == 1 else ""
        print(f"{system} failed {len(failed)} of {len(results)} checks: {', '.join(failed)}{rest}")
        raise typer.Exit(1)
    print(f"{system} passed all {len(results)} checks")


def _tell(result: CheckResult) -> None:
    print(f"{'ok  ' if result.passed else 'FAIL'}  {result.name}: {plain(result.detail)}", flush=True)
    if result.causes:
        print(f"      likely causes: {result.causes}", flush=True)


@with_options
def verify(path: Path) -> None:
    """Check that a run or an index is undamaged: compare checksums and, for a run, each answer with the journal.
    The exit code is 1 if something is damaged, or 2 if something cannot be read.

    Args:
        path: The folder of a run or an index.
    """
    import pyfast.api.verification

    verification = pyfast.api.verification.verify(path)
    for check in verification.checks:
        result = "ok  " if check.passed else "FAIL" if check.looked else "????"
        print(f"{result}  {check.name}: {plain(check.detail)}")
    print(verification.summary)
    if not verification.passed:
        raise typer.Exit(1 if any(check.looked and not check.passed for check in verification.checks) else 2)


def doctor() -> None:
    """Show how pyfast was built, what hardware this machine has, and on which device each op runs."""
    from pyfast.api.environment import describe_environment

    environment = describe_environment()
    machine = f"{environment.machine}, {environment.cores} cores, {environment.instructions}"
    say(f"pyfast {environment.pyfast}, Python {environment.python}, {machine}")
    say(f"GPU ops: {'built' if environment.has_gpu_ops else 'not built'}")
    say(f"GPU: {environment.gpu_problem or '; '.join(environment.gpus)}")
    say(f"GPUs for models and vectors (--device): {plain('; '.join(environment.torch_gpus)) or 'none'}")
    packages = ((one.name, one.version or "not installed", one.use) for one in environment.packages)
    show_table(["package", "version", "for"], packages)
    ops = ((op, "cpu", "cuda" if on_gpu else "refused") for op, on_gpu in environment.ops.items())
    show_table(["op", "arrays on the CPU", "arrays on a GPU"], ops)
