"""Write the tables of settings in the documentation, from the systems themselves.

A table stands between `<!-- settings: NAME -->` and `<!-- end -->`. Run `python docs/settings.py` when a setting
has changed; a test holds the tables to the systems.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from pyfast.systems import settings_table

DOCS = Path(__file__).resolve().parent
_TABLE = re.compile(r"(<!-- settings: ([^\s>]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def with_tables(text: str) -> str:
    """The text with its tables as the systems are now."""
    return _TABLE.sub(lambda found: f"{found[1]}\n{settings_table(found[2])}\n\n{found[3]}", text)


def outdated(folder: Path = DOCS) -> dict[Path, str]:
    """The pages whose tables are not those of the systems, and what they should be."""
    pages = {path: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md"))}
    return {path: new for path, text in pages.items() if (new := with_tables(text)) != text}


if __name__ == "__main__":
    for path, text in outdated().items():
        path.write_text(text, encoding="utf-8")
        print(f"{path.name}: written", file=sys.stderr)
