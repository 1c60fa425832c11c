"""Cut wide tables, and take long texts out of cells, because a model cannot read a row of that size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pyfast.corpus.documents import Table, TextDocument
from pyfast.corpus.packed import pack
from pyfast.corpus.text_splitting import LENGTH

COLUMNS = 64
"""The maximum number of columns in a table"""
_SHOWN = 300
"""How many characters of a long cell stay in its row, and how many of other cells are in the title of its text"""


def narrow(table: Table, columns: int) -> Iterator[Table]:
    """Cut a wide table into several tables, with uris such as `uri#columns-65-127`. A narrow table stays
    unchanged.

    Each new table begins with the first column of the old table, which identifies the rows. Its header has the
    names of its own columns. Links stay with their cells.
    """
    widest = max(len(table.header), max(map(len, table.rows), default=0))
    if widest <= columns:
        yield table
        return
    step = max(columns - 1, 1)
    for start in range(1, widest, step):
        stop = min(start + step, widest)
        links = [
            (row, column - start + 1 if column else 0, uri)
            for row, column, uri in table.links
            if start <= column < stop or (column == 0 and start == 1)
        ]
        yield Table(
            f"{table.uri}#columns-{start + 1}-{stop}",
            table.title,
            table.section,
            table.header[:1] + table.header[start:stop],
            pack(row[:1] + row[start:stop] for row in table.rows),
            tuple(links),
        )


def without_long_cells(table: Table) -> tuple[Table, list[TextDocument]]:
    """Make a text of each cell of more than 4,000 characters. A text is cut into passages, and a row is not.

    The cell keeps the first characters of its text, and links to it. The title of the text has the table's title
    and the short cells of the row. Its uri is such as `uri#row-3-column-2`. Rows and columns count from 1.

    Returns:
        The table, and the texts.
    """
    long = [(number, row) for number, row in enumerate(table.rows) if max(map(len, row), default=0) > LENGTH]
    if not long:
        return table, []
    texts, links = [], list(table.links)
    changed: dict[int, tuple[str, ...]] = {}
    for number, row in long:
        known = "; ".join(cell.strip() for cell in row if cell.strip() and len(cell) <= _SHOWN)[:_SHOWN]
        title = ": ".join(filter(None, (table.title, known)))
        cells = list(row)
        for column, cell in enumerate(row):
            if len(cell) > LENGTH:
                uri = f"{table.uri}#row-{number + 1}-column-{column + 1}"
                name = table.header[column] if column < len(table.header) else ""
                texts.append(TextDocument(uri, ", ".join(filter(None, (title, name))), cell))
                links.append((number, column, uri))
                cells[column] = f"{cell[:_SHOWN].rsplit(None, 1)[0]} …"
        changed[number] = tuple(cells)
    rows = pack(changed.get(number, row) for number, row in enumerate(table.rows))
    return replace(table, rows=rows, links=tuple(sorted(links))), texts
