"""Turn tables and knowledge graphs into segments: table > table_row > table_cell, document > subgraph > triplet.

Tables and knowledge graphs are both trees of three levels with strings as leaves, so the same code handles both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyfast.corpus import schema
from pyfast.corpus.documents import KnowledgeGraph, Table, Triple
from pyfast.corpus.levels import Level
from pyfast.corpus.schema import Columns
from pyfast.corpus.text_buffer import Integers, append_text, lengths

MAX_SUBGRAPH = 64
"""The maximum number of triples in one subgraph"""


@dataclass(frozen=True, slots=True)
class _Tree:
    """The positions of the nodes of three-level trees, in depth-first order (int64 each)."""

    size: int
    top: Integers  # positions of the roots, of the nodes below them, and of the leaves
    middle: Integers
    leaf: Integers
    top_of_middle: Integers
    middle_of_leaf: Integers
    first_middle: Integers  # [tops + 1]: each root's first node of the middle level; then all of them
    first_leaf: Integers  # [middles + 1]


def _tree(middles: Integers, leaves: Integers) -> _Tree:
    """Compute the positions of all nodes. `middles` has the number of children of each root, and `leaves` has
    the number of leaves of each child.
    """
    first_middle = np.concatenate([[0], np.cumsum(middles)])
    first_leaf = np.concatenate([[0], np.cumsum(leaves)])
    top_of_middle = np.repeat(np.arange(middles.size), middles)
    middle_of_leaf = np.repeat(np.arange(leaves.size), leaves)
    return _Tree(
        size=middles.size + leaves.size + middle_of_leaf.size,
        top=np.arange(middles.size) + first_middle[:-1] + first_leaf[first_middle[:-1]],
        middle=np.arange(leaves.size) + top_of_middle + 1 + first_leaf[:-1],
        leaf=np.arange(middle_of_leaf.size) + middle_of_leaf + 1 + top_of_middle[middle_of_leaf] + 1,
        top_of_middle=top_of_middle,
        middle_of_leaf=middle_of_leaf,
        first_middle=first_middle,
        first_leaf=first_leaf,
    )


def encode_tables(tables: Sequence[Table], source: NDArray[np.int32], buffer: bytearray) -> Columns:
    """Make the segments of tables, depth first. `source` has the number of each table among the documents."""
    rows = [row for table in tables for row in table.rows]
    cells = list(chain.from_iterable(rows))
    tree = _tree(lengths(table.rows for table in tables), lengths(rows))
    cuts = _store_all(cells, buffer)

    row = np.full(tree.size, -1, dtype=np.int64)
    row[tree.middle] = np.arange(tree.middle.size) - tree.first_middle[tree.top_of_middle]
    row[tree.leaf] = row[tree.middle[tree.middle_of_leaf]]
    column = np.full(tree.size, -1, dtype=np.int64)
    column[tree.leaf] = np.arange(tree.leaf.size) - tree.first_leaf[tree.middle_of_leaf]
    return {
        **_lay_out(tree, (Level.TABLE, Level.TABLE_ROW, Level.TABLE_CELL), source, cuts),
        "start": row,
        "end": column,
        "passage": _passages(tree, _visible(cells)),
    }


def encode_graphs(
    graphs: Sequence[KnowledgeGraph], source: NDArray[np.int32], buffer: bytearray
) -> tuple[Columns, pa.RecordBatch]:
    """Make the segments of knowledge graphs, depth first, and a row of `schema.TRIPLES` for each triple, in the
    same order."""
    grouped = [_subgraphs(graph.triples) for graph in graphs]
    subgraphs = list(chain.from_iterable(grouped))
    triples = [
        graph.triples[k] for graph, groups in zip(graphs, grouped, strict=True) for ks in groups for k in ks
    ]
    strings = list(chain.from_iterable((triple.head, triple.relation, triple.tail) for triple in triples))
    tree = _tree(lengths(grouped), lengths(subgraphs))
    cuts = _store_all(strings, buffer)

    nowhere = np.full(tree.size, -1, dtype=np.int64)
    levels = (Level.DOCUMENT, Level.SUBGRAPH, Level.TRIPLET)
    columns = {
        **_lay_out(tree, levels, source, cuts[::3]),
        "start": nowhere,
        "end": nowhere,
        "passage": _passages(tree, np.logical_or.reduce(_visible(strings).reshape(-1, 3), axis=1)),
    }
    facts = {
        "ordinal": np.fromiter(chain.from_iterable(subgraphs), dtype=np.int64),
        "relation_start": cuts[1::3],
        "tail_start": cuts[2::3],
        "timed": np.array([triple.time is not None for triple in triples], dtype=np.uint8),
        "time": [triple.time or "" for triple in triples],
    }
    return columns, schema.record(schema.TRIPLES, facts)


def _subgraphs(triples: Sequence[Triple]) -> list[list[int]]:
    """Group triples by their heads. Returns the numbers of the triples in each group, from 0.

    A group has at most `MAX_SUBGRAPH` triples, so a head can have several groups. Heads are in the order in
    which they first occur.
    """
    heads: dict[str, list[int]] = {}
    for k, triple in enumerate(triples):
        heads.setdefault(triple.head, []).append(k)
    return [ks[i : i + MAX_SUBGRAPH] for ks in heads.values() for i in range(0, len(ks), MAX_SUBGRAPH)]


def _store_all(strings: Sequence[str], buffer: bytearray) -> Integers:
    """Append n strings to the buffer. Returns n + 1 positions in the buffer: where each string starts, and
    where the last one ends."""
    return append_text("".join(strings), buffer)(np.concatenate([[0], np.cumsum(lengths(strings))]))


def _visible(strings: Sequence[str]) -> NDArray[np.bool_]:
    return np.fromiter(map(bool, map(str.strip, strings)), dtype=bool, count=len(strings))


def _passages(tree: _Tree, visible: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return the column `passage`: 1 for table rows and subgraphs, unless they are blank, and 0 for all other
    segments.

    `visible` has one value for each leaf: False if the text of the leaf is blank.
    """
    seen = np.concatenate([[0], np.cumsum(visible)])[tree.first_leaf]
    passage = np.zeros(tree.size, dtype=np.uint8)
    passage[tree.middle] = seen[1:] > seen[:-1]
    return passage


def _lay_out(
    tree: _Tree, levels: tuple[Level, Level, Level], source: NDArray[np.int32], cuts: Integers
) -> Columns:
    """Return the columns `level`, `source`, `byte_start` and `byte_end` of trees. `cuts` has the byte
    positions at which the leaves start, and the position at which the last leaf ends.
    """
    level = np.empty(tree.size, dtype=np.uint8)
    number = np.empty(tree.size, dtype=np.int64)
    byte_start, byte_end = np.empty_like(number), np.empty_like(number)
    middle_cuts = cuts[tree.first_leaf]
    for position, name, of_top, limits in (
        (tree.top, levels[0], np.arange(tree.top.size), middle_cuts[tree.first_middle]),
        (tree.middle, levels[1], tree.top_of_middle, middle_cuts),
        (tree.leaf, levels[2], tree.top_of_middle[tree.middle_of_leaf], cuts),
    ):
        level[position] = name
        number[position] = of_top
        byte_start[position], byte_end[position] = limits[:-1], limits[1:]
    return {
        "level": level,
        "source": source[number],
        "byte_start": byte_start,
        "byte_end": byte_end,
    }
