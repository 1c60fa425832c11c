"""Convert HTML to Markdown. Headings, lists and tables are kept. Scripts, styles, navigation and link targets are
left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyfast.corpus.documents import Document
from pyfast.corpus.formats.markdown import markdown_documents

_LEFT_OUT = ["script", "style", "noscript", "template", "nav", "svg", "head"]


def read_html(uri: str, path: Path) -> Iterator[Document]:
    """Read the text and the tables of a page. If the page does not name its encoding, Beautiful Soup guesses
    it."""
    from bs4 import BeautifulSoup
    from markdownify import MarkdownConverter

    soup = BeautifulSoup(path.read_bytes(), "lxml")
    title = soup.title.get_text(" ", strip=True) if soup.title else ""
    for element in soup.find_all(_LEFT_OUT):
        element.decompose()
    plain: dict[str, Any] = {"escape_asterisks": False, "escape_underscores": False, "escape_misc": False}
    text = MarkdownConverter(
        heading_style="ATX", strip=["a", "img", "b", "strong", "em", "i", "code"], **plain
    ).convert_soup(soup)
    yield from markdown_documents(uri, path.stem, text.strip() + "\n", named=title)
