"""A corpus as a stream: the neighbours are those of the documents, the windows follow the levels."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from corpus_strategies import documents
from hypothesis import HealthCheck, given, settings
from numpy.typing import ArrayLike
from references import hseq_stream_reference
from test_sequence import mixed

from pyfast import ops
from pyfast.corpus import Corpus, Document, KnowledgeGraph, Level, Table, encode, read
from pyfast.ops.hseq_stream import subtree_ends
from pyfast.systems.hseq.views import PRIORITY


def stream(
    corpus: Corpus, priority: Sequence[Level] = PRIORITY, tombstones: ArrayLike | None = None
) -> ops.Stream:
    tree = corpus.level, corpus.parent, corpus.subtree_end
    return ops.hseq_stream(*tree, priority=priority, tombstones=tombstones)


def near(segments: ops.Stream, i: int, kind: str) -> list[int]:
    found: list[int] = segments.neighbors([i], kind)[1].tolist()  # type: ignore[arg-type]
    return found


def check(corpus: Corpus, given_documents: list[Document]) -> None:
    """Every table and graph is found again by going from neighbour to neighbour."""
    segments = stream(corpus)
    for source, document in enumerate(given_documents):
        below = near(segments, int(corpus.roots[source]), "children")
        if isinstance(document, Table):
            rows = [near(segments, row, "children") for row in below]
            assert [tuple(map(corpus.content, row)) for row in rows] == list(document.rows)
            for r, row in enumerate(rows):
                for k, cell in enumerate(row):
                    assert near(segments, cell, "row") == row[:k] + row[k + 1 :]
                    others = [other for other in rows[:r] + rows[r + 1 :] if len(other) > k]
                    assert near(segments, cell, "column") == [other[k] for other in others]
                    assert near(segments, cell, "parent") == [below[r]]
        elif isinstance(document, KnowledgeGraph):
            for subgraph in below:
                facts = near(segments, subgraph, "children")
                heads = {corpus.triples(fact)[0].head for fact in facts}
                assert len(heads) == 1
                for fact in facts:
                    assert near(segments, fact, "relation") == [other for other in facts if other != fact]


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(documents)
def test_neighbours_are_those_of_the_documents(given_documents: list[Document]) -> None:
    corpus = encode(given_documents)
    assert np.array_equal(corpus.subtree_end, subtree_ends(corpus.parent))
    check(corpus, given_documents)


def test_best_levels_first() -> None:
    corpus = encode(mixed())
    segments = stream(corpus)
    found = segments.window(segments.cursors(1), len(corpus))[1]
    assert found.tolist() == sorted(
        (i for i in range(len(corpus)) if corpus.level[i] in (2, 3, 5, 8)),
        key=lambda i: ((2, 5, 3, 8).index(corpus.level[i]), i),
    )


def test_saved_corpora_stream_alike(tmp_path: Path) -> None:
    corpus = encode(mixed())
    corpus.save(tmp_path)
    opened = stream(Corpus.open(tmp_path), [Level.SENTENCE, Level.TABLE_CELL])
    segments = stream(corpus, [Level.SENTENCE, Level.TABLE_CELL])
    windows = [each.window(each.cursors(1), 100)[1].tolist() for each in (opened, segments)]
    assert windows[0] == windows[1] and len(windows[0]) > 10


@pytest.mark.parametrize("name", ["hybridqa", "metaqa", "tatqa", "hotpotqa"])
def test_real_documents(name: str, data: Path) -> None:
    given_documents = list(islice(read([data / name / "corpus.jsonl"]), 300))
    corpus = encode(given_documents)
    check(corpus, given_documents)
    segments = stream(corpus, tombstones=np.arange(len(corpus)) % 5 == 0)
    cursors = segments.cursors(1, ([0, 3], [7, 1, 6]))
    shown: list[int] = []
    while len(window := segments.window(cursors, 50)[1]):
        shown += window.tolist()
        cursors = segments.refresh(cursors, ([0, 5], window[:5]) if len(window) >= 5 else ([0, 0], []), past=50)
    expected = hseq_stream_reference(corpus.level, (2, 5, 3, 8), range(0, len(corpus), 5), [7, 1, 6])
    assert shown == list(expected)
