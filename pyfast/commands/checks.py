"""`pyfast systems` lists the systems; `pyfast check`, `pyfast verify` and `pyfast doctor` check a system, a folder
and this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pyfast.commands.arguments import pairs, with_options
from pyfast.commands.terminal import console, plain, say, show_table
from pyfast.utils.options import Option

if TYPE_CHECKING:
    from pyfast.api.conformance import CheckResult


@with_options
def check(
    system: str, *, index: Path | None = None, setting: Annotated[list[str] | None, Option(flag="--set")] = None
) -> None:
    """Check that a system can resume its runs, stays within its budgets, and survives hostile questions and
    unusable replies.

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


@with_options
def systems(name: str | None = None) -> None:
    """List the systems, or show the settings, presets and prompts of one system.

    Args:
        name: A system, or MODULE:NAME. Default: list all systems.
    """
    if name is None:
        _list()
    else:
        _show(name)


def _list() -> None:
    from rich.table import Table
    from rich.text import Text

    from pyfast.systems import describe_systems

    table = Table("system", "what it is", "index", "paper")
    table.columns[0].no_wrap = True
    for system in describe_systems():
        index = "needed" if system.needs_index else "none"
        cells = (system.name, system.summary, index, system.paper)
        table.add_row(*(Text(plain(cell), overflow="fold") for cell in cells))
    console(stderr=False).print(table)


def _show(name: str) -> None:
    from rich.table import Table
    from rich.text import Text

    from pyfast.systems import describe_settings, describe_system

    system, settings = describe_system(name), describe_settings(name)
    screen, roles = console(stderr=False), system.roles.items()
    screen.print(Text(plain(f"{system.name}: {system.summary}")))
    for label, shown in (
        ("paper", system.paper or "none"),
        ("index", "needed" if system.needs_index else "none"),
        ("prompts", ", ".join(system.prompts) or "none"),
        ("roles", "; ".join(f"{role}: {', '.join(asked) or 'all'}" for role, asked in roles)),
    ):
        screen.print(Text(plain(f"{label}: {shown}")))
    for prompt, reply in system.replies.items():
        screen.print(Text(plain(f"reply to {prompt}: {reply}")))
    for preset in system.presets:
        screen.print(Text(plain(f"preset {preset.name} ({preset.meaning}): {preset.settings}")))
    if not settings:
        screen.print("settings: none")
        return
    # Three columns, so that sentences stay readable on a narrow terminal.
    table = Table("setting", "values, default", "meaning, paper", show_lines=True)
    table.columns[0].no_wrap = True
    for it in settings:
        values = plain(f"{it.type}, {it.range}" if it.range else it.type)
        default = plain(it.default) or "none"
        table.add_row(
            Text(it.name),
            Text(f"{values}\ndefault: {default}", overflow="fold"),
            Text(f"{plain(it.meaning)}\npaper: {plain(it.paper)}".lstrip(), overflow="fold"),
        )
    screen.print(table)
