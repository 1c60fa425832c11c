"""Each guarantee that docs/architecture.md lists has tests that name it, where the table says."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROW = re.compile(r"^\| (G\d+) \| (.+?) \| (.+?) \|$", re.MULTILINE)
MARK = re.compile(r'^(?:@|pytestmark = )pytest\.mark\.guarantee\("(\w+)"\)$', re.MULTILINE)
TABLE = {
    name: where for name, _, where in ROW.findall((ROOT / "docs/architecture.md").read_text(encoding="utf-8"))
}


def marked() -> dict[str, set[str]]:
    """Of each guarantee the files with tests that name it."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for name in MARK.findall(path.read_text(encoding="utf-8")):
            found.setdefault(name, set()).add(str(path.relative_to(ROOT / "tests")))
    return found


def test_there_are_ten() -> None:
    assert list(TABLE) == [f"G{number}" for number in range(1, 11)]
    assert marked().keys() <= TABLE.keys()


@pytest.mark.parametrize("name", TABLE)
def test_each_is_tested_where_the_table_says(name: str) -> None:
    listed = set(re.findall(r"`([\w/]+\.py)`", TABLE[name]))
    assert listed == marked().get(name, set()) and listed


def test_every_mark_is_read() -> None:
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        assert len(MARK.findall(text)) == len(re.findall(r"mark\.guarantee\(", text)), path.name
