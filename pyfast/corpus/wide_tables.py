"""Cut a wide table into several tables, because a model cannot read a row of thousands of cells."""

from __future__ import annotations

from collections.abc import Iterator

from pyfast.corpus.documents import Table
from pyfast.corpus.packed import pack

COLUMNS = 64
"""The maximum number of columns in a table"""


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
