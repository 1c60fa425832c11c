"""The parts of an index. A part is written once and never changes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np
from scipy.sparse import csc_array, csr_array, vstack

from pyfast import ops
from pyfast.corpus import Corpus, Document, encode
from pyfast.ops.arrays import Int32, Int64
from pyfast.retrieval.analysis import Analysis
from pyfast.retrieval.bm25 import FOLDER as BM25_FOLDER
from pyfast.retrieval.bm25 import STOP_WORDS, open_term_counts, save_term_counts, term_counts
from pyfast.retrieval.forward_index import (
    WORDS,
    Mask,
    cell_terms,
    count_terms,
    join_cells,
    open_cells,
    open_weights,
    save_cells,
    save_weights,
    transpose,
    weigh,
)
from pyfast.retrieval.passage_size import PassageSize, indexed_text, passage_line
from pyfast.retrieval.passage_vectors import (
    PassageVectors,
    dense_codes,
    join_vectors,
    open_vectors,
    save_vectors,
)
from pyfast.retrieval.rendered_passages import FOLDER as RENDERED_FOLDER
from pyfast.retrieval.rendered_passages import (
    RenderedPassages,
    join_rendered,
    open_rendered,
    render_passages,
    save_rendered,
)

_CELLS, _WEIGHTS, _TERMS = "cells", "forward", "terms.json"


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Some documents, with the data for searching them. Only the weights depend on other parts."""

    corpus: Corpus
    passages: Int64 = field(init=False)
    """[passages] the segment of each passage"""
    terms: list[str]
    """The term of each column, sorted"""
    counts: ops.TermCounts
    cells: ops.Cells
    rendered: RenderedPassages
    """The text of each passage, as the LLM reads it"""
    weights: tuple[csr_array, csr_array] | None = None
    """X and its transpose, if this part is the whole index"""
    vectors: Mapping[str, PassageVectors] = field(default_factory=dict)
    """The vectors of each kind that the index has, dense or sparse"""
    analysis: Analysis = WORDS
    """The analysis that made its terms"""
    codes: Path | None = None
    """The file of faiss's codes of its dense vectors, if there are many"""

    def __post_init__(self) -> None:
        """Look up the passages."""
        object.__setattr__(self, "passages", self.corpus.passages())

    def live_passages(self, live: Mask) -> Mask:
        """Which passages belong to documents that are not deleted."""
        kept: Mask = live[self.corpus.source[self.passages]]
        return kept


def make_part(documents: Iterable[Document], size: PassageSize, analysis: Analysis = WORDS) -> Part:
    """Make the part of these documents, in memory."""
    corpus = encode(documents, size.length)
    passages = corpus.passages().tolist()
    counted, terms = count_terms((indexed_text(corpus, i, size.overlap) for i in passages), analysis)
    vocabulary = {term: i for i, term in enumerate(terms)}
    rows = (corpus.cells(i) if corpus.is_table(i) else [] for i in passages)
    counts = counted if terms else csr_array(np.empty((len(passages), 0), np.float32))  # that has a row for each
    return Part(
        corpus,
        terms,
        term_counts(counts, terms, analysis),
        cell_terms(rows, vocabulary, analysis),
        render_passages(passage_line(corpus, i, size.overlap) for i in passages),
        analysis=analysis,
    )


def join_parts(parts: Sequence[Part], live: Sequence[Mask]) -> Part:
    """Join the documents of several parts that are not deleted into one part, in order."""
    kept = [part.live_passages(alive) for part, alive in zip(parts, live, strict=True)]
    matrices = [_by_passage(part)[keep] for part, keep in zip(parts, kept, strict=True)]
    used = [
        (np.bincount(matrix.indices, minlength=len(part.terms)) > 0).tolist()
        for part, matrix in zip(parts, matrices, strict=True)
    ]
    analysis = parts[0].analysis
    stop = analysis.stop(STOP_WORDS)
    terms = sorted(
        set(
            chain.from_iterable(
                (term for term, is_used in zip(part.terms, some, strict=True) if is_used or term in stop)
                for part, some in zip(parts, used, strict=True)
            )
        )
    )
    columns = columns_in(terms, parts)
    for matrix, column in zip(matrices, columns, strict=True):
        matrix.indices = column[matrix.indices]
    shaped = [csr_array((m.data, m.indices, m.indptr), shape=(m.shape[0], len(terms))) for m in matrices]
    return Part(
        Corpus.join([part.corpus for part in parts], live),
        terms,
        ops.TermCounts.of(csr_array(vstack(shaped, format="csr"))),
        join_cells([part.cells for part in parts], kept, columns),
        join_rendered([part.rendered for part in parts], kept),
        vectors=join_vectors([part.vectors for part in parts], kept),
        analysis=analysis,
    )


def columns_in(terms: Sequence[str], parts: Sequence[Part]) -> list[Int32]:
    """For each part, the position of each of its terms in `terms`; -1 if it is not there."""
    place = {term: i for i, term in enumerate(terms)}
    return [np.fromiter((place.get(term, -1) for term in part.terms), np.int32, len(part.terms)) for part in parts]


def _by_passage(part: Part) -> csr_array:
    """The counts of a part, passages x terms of the part, rows sorted."""
    counts = part.counts
    shape = (len(part.passages), len(part.terms))
    return csr_array(csc_array((counts.counts, counts.documents, counts.indptr), shape=shape).tocsr())


def weigh_part(part: Part) -> tuple[csr_array, csr_array]:
    """Compute X and its transpose for a part that is a whole index."""
    x = weigh(_by_passage(part).astype(np.float32), part.terms, part.analysis)
    return x, transpose(x, part.counts)


def save_part(folder: Path, part: Part, alone: bool) -> None:
    """Write a part into a new folder, with its weights if it is a whole index."""
    folder.mkdir(parents=True)
    part.corpus.save(folder / "corpus")
    (folder / _TERMS).write_text(json.dumps(part.terms, ensure_ascii=False), encoding="utf-8")
    save_term_counts(folder / BM25_FOLDER, part.counts)
    save_cells(folder / _CELLS, part.cells)
    save_rendered(folder / RENDERED_FOLDER, part.rendered)
    save_vectors(folder, part.vectors)
    if alone:
        save_weights(folder / _WEIGHTS, *weigh_part(part))


def open_part(folder: Path, analysis: Analysis = WORDS) -> Part:
    """Open a part, memory-mapped."""
    terms = json.loads((folder / _TERMS).read_text(encoding="utf-8"))
    counts = open_term_counts(folder / BM25_FOLDER)
    return Part(
        Corpus.open(folder / "corpus"),
        terms,
        counts,
        open_cells(folder / _CELLS),
        open_rendered(folder / RENDERED_FOLDER),
        open_weights(folder / _WEIGHTS, counts) if (folder / _WEIGHTS).is_dir() else None,
        open_vectors(folder),
        analysis,
        dense_codes(folder),
    )
