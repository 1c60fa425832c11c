"""The documentation's tables of settings are those of the systems, and every system has one."""

import re
import runpy
from pathlib import Path

import pytest

from pyfast.systems import describe_settings, describe_system, names, settings_table

DOCS = Path(__file__).resolve().parents[1] / "docs"
SCRIPT = runpy.run_path(str(DOCS / "settings.py"))


def test_the_tables_are_up_to_date() -> None:
    assert list(SCRIPT["outdated"]()) == [], "run `python docs/settings.py`"


@pytest.mark.parametrize("name", [name for name in names() if describe_settings(name)])
def test_every_system_has_its_table(name: str) -> None:
    pages = [
        path for path in DOCS.glob("*.md") if f"<!-- settings: {name} -->" in path.read_text(encoding="utf-8")
    ]
    assert len(pages) == 1 and settings_table(name) in pages[0].read_text(encoding="utf-8")


@pytest.mark.parametrize("name", names())
def test_the_roles_of_every_system_are_told(name: str) -> None:
    roles = "; ".join(f"{role}: {', '.join(asked)}" for role, asked in describe_system(name).roles.items())
    assert f"| `{name}` | {roles} |\n" in (DOCS / "systems.md").read_text(encoding="utf-8")


def test_every_table_ends() -> None:
    for path in DOCS.glob("*.md"):
        marks = re.findall(r"<!-- (settings|end)\b", path.read_text(encoding="utf-8"))
        assert marks == ["settings", "end"] * (len(marks) // 2), path.name


def test_a_table_is_written_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "before\n<!-- settings: rag -->\nold\n<!-- end -->\nbetween\n<!-- settings: cot -->\n<!-- end -->\n"
    )
    (tmp_path / "other.md").write_text("# Other\n")
    written = SCRIPT["outdated"](tmp_path)
    assert list(written) == [page]
    assert written[page] == (
        f"before\n<!-- settings: rag -->\n\n{settings_table('rag')}\n\n<!-- end -->\nbetween\n"
        f"<!-- settings: cot -->\n\n{settings_table('cot')}\n\n<!-- end -->\n"
    )
    page.write_text(written[page])
    assert SCRIPT["outdated"](tmp_path) == {}
