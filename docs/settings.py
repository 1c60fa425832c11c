"""Write the tables of settings in the documentation, from the systems themselves.

A table stands between `<!-- settings: NAME -->`, or `<!-- replies -->`, and `<!-- end -->`. Run
`python docs/settings.py` when a setting or the form of a reply has changed. A test compares the tables with the
systems.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

from pyfast.systems import describe_systems, settings_table

DOCS = Path(__file__).resolve().parent
_REPLIES = re.compile(r"(<!-- replies -->\n).*?(<!-- end -->)", re.DOTALL)
_TABLE = re.compile(r"(<!-- settings: ([^\s>]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def replies() -> str:
    """The reply that each prompt of each system expects, as a Markdown table."""
    rows = defaultdict(list)
    for system in describe_systems():
        for prompt, reply in system.replies.items():
            rows[f"| `{prompt}` | ", f" | `{reply}` |"].append(f"`{system.name}`")
    lines = (before + ", ".join(systems) + after for (before, after), systems in rows.items())
    return "\n".join(["| prompt | systems | reply |", "|---|---|---|", *lines])


def with_tables(text: str) -> str:
    """The text with its tables as the systems are now."""
    text = _REPLIES.sub(lambda found: f"{found[1]}\n{replies()}\n\n{found[2]}", text)
    return _TABLE.sub(lambda found: f"{found[1]}\n{settings_table(found[2])}\n\n{found[3]}", text)


def outdated(folder: Path = DOCS) -> dict[Path, str]:
    """The pages whose tables are not those of the systems, and what they should be."""
    pages = {path: path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.md"))}
    return {path: new for path, text in pages.items() if (new := with_tables(text)) != text}


if __name__ == "__main__":
    for path, text in outdated().items():
        path.write_text(text, encoding="utf-8")
        print(f"{path.name}: written", file=sys.stderr)
