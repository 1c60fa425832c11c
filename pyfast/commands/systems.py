"""`pyfast systems`."""

from __future__ import annotations

from pyfast.commands.arguments import with_options
from pyfast.commands.terminal import console, plain


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
