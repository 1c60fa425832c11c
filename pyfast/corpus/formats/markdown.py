"""Read Markdown. Headings begin sections, tables become separate documents, and YAML front matter becomes
metadata."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyfast.corpus.documents import Document, Outline, TextDocument
from pyfast.corpus.formats.encodings import read_text
from pyfast.corpus.grids import table_of_grid
from pyfast.corpus.sections import layout, section_at

_FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_MOST = 1 << 16  # the maximum number of characters of front matter


def read_markdown(uri: str, path: Path) -> Iterator[Document]:
    """Read the text and the tables of a file."""
    text = read_text(path)
    about, end = _front_matter(text)
    title = about.get("title")
    yield from markdown_documents(
        uri, path.stem, text, start=end, about=about, named=title if isinstance(title, str) else ""
    )


def markdown_documents(
    uri: str, stem: str, text: str, *, start: int = 0, about: Mapping[str, Any] | None = None, named: str = ""
) -> Iterator[Document]:
    """Make documents from a Markdown text, without its first `start` characters (front matter). Each table
    becomes a separate document, with a uri such as `uri#table-1`.

    `about` is the metadata. The title is `named`, or else the first heading of depth 1, or else `stem`.
    """
    headings, tables = layout(text, start)
    first = next((heading.text for heading in headings if heading.depth == 1 and heading.text), "")
    title = named or first or stem
    aside = [(0, start)] if start else []
    outline = Outline(
        headings=tuple(headings),
        aside=(*aside, *((table.start, table.end) for table in tables)),
        about=json.dumps(about, ensure_ascii=False, default=str) if about else "",
    )
    yield TextDocument(uri, title, text, markdown=True, outline=outline)
    for number, table in enumerate(tables, start=1):
        section = section_at(headings, table.start, title)
        cells = (table.header, *table.rows)
        # Without texts in its header, a table has its names in the first row, or a title there.
        heads = 1 if any(table.header) else None
        yield table_of_grid(f"{uri}#table-{number}", title, section, cells, header_rows=heads)


def _front_matter(text: str) -> tuple[Mapping[str, Any], int]:
    """Return (the metadata, the end of the front matter). Without valid front matter: no metadata, and 0."""
    match = _FRONT_MATTER.match(text[:_MOST])
    if match is None:
        return {}, 0
    import yaml

    try:
        # Aliases can expand a few lines to gigabytes.
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(match[1], yaml.SafeLoader)):
            return {}, 0
        values = yaml.safe_load(match[1])
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}, 0
    return (values, match.end()) if isinstance(values, dict) else ({}, 0)
