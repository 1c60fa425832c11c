"""`pyfast systems`: what it prints is what the systems say of themselves, whole on any terminal."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pyfast.commands.cli import app
from pyfast.errors import InputError
from pyfast.systems import describe_settings, describe_system, describe_systems, names


def told(*arguments: str, columns: int = 80) -> str:
    result = CliRunner(env={"COLUMNS": str(columns)}).invoke(app, ["systems", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def squeezed(text: str) -> str:
    return re.sub(r"\s", "", text)


def columns_of(table: str) -> str:
    """The text of a table's columns, one after the other: cells are wrapped over lines."""
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in table.splitlines() if line[0] == "│"]
    return "".join(squeezed(cell) for column in zip(*rows, strict=True) for cell in column)


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_all_systems_are_listed(columns: int) -> None:
    shown = columns_of(told(columns=columns))
    for system in describe_systems():
        assert squeezed(system.summary) in shown and squeezed(system.paper) in shown
    assert "…" not in shown


@pytest.mark.parametrize("columns", [60, 80, 200])
@pytest.mark.parametrize("name", names())
def test_all_of_a_system_is_shown(name: str, columns: int) -> None:
    text = told(name, columns=columns)
    shown = columns_of(text)
    for setting in describe_settings(name):
        for part in (setting.name, setting.type, setting.range, setting.default, setting.meaning, setting.paper):
            assert squeezed(part) in shown, part
    assert "…" not in shown and text.startswith(f"{name}: ")


def test_in_a_pipe_no_cell_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    for arguments, texts in (
        ([], [system.summary for system in describe_systems()]),
        (["n2n"], [setting.meaning for setting in describe_settings("n2n")]),
    ):
        lines = CliRunner().invoke(app, ["systems", *arguments], catch_exceptions=False).stdout.splitlines()
        assert all(any(text in line for line in lines) for text in texts)


def test_presets_are_shown() -> None:
    shown = squeezed(told("n2n"))
    for preset in describe_system("n2n").presets:
        assert squeezed(f"preset {preset.name} ({preset.meaning}): {preset.settings}") in shown


def test_prompts_are_named() -> None:
    assert "prompts: guide, select, head, verify\n" in told("hseq") and "prompts: none\n" in told("graph_convqa")
    assert "prompts: cot, long_cot\n" in told("cot")


def test_roles_are_named_with_their_prompts() -> None:
    assert "\nroles: plan: guide; pick: select; answer: head; judge: verify\n" in told("hseq")
    assert "\nroles: answer: answer\n" in told("graph_convqa")


def test_a_system_of_a_users_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_module.py").write_text(
        "from pyfast.systems import Settings, System\n"
        "async def answer(question, ctx, settings): ...\n"
        "THEIRS = System('theirs', answer, Settings, (), summary='[bold]red[/bold]\\x1b[31m')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert told("their_module:THEIRS").startswith("theirs: [bold]red[/bold] [31m\n")  # as it stands, and harmless
    with pytest.raises(InputError, match="unknown system 'theirs'"):
        told("theirs")
