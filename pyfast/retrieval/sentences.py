"""Write passages with only the sentences that matter most for the question. No LLM chooses them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

import pyfast.ops as ops
from pyfast.corpus import Level
from pyfast.ops.arrays import Bool, ends, utf8
from pyfast.retrieval.index.index import Index, of_index
from pyfast.retrieval.pools import Pool, stack_pools
from pyfast.retrieval.terms import count_terms

_LEFT_OUT = " ... "
_PRONOUNS = frozenset(("he", "she", "it", "they", "his", "her", "its", "their", "this", "these", "that", "those"))


@of_index
def narrate_sentences(
    index: Index, items: Sequence[tuple[Pool, str]], characters: int, share: float
) -> list[tuple[str, int]]:
    """Write the passages of each pool as numbered lines, best first, with the sentences that matter most for a
    question (see `ops.select_sentences`). Sentences of a passage that are left out become `...`.

    A table row or a subgraph counts as one sentence. A passage without a chosen sentence has no line.

    Args:
        index: The index.
        items: The pools, each with its question.
        characters: The maximum number of characters in a text, as in `narrate`.
        share: What share of the characters of a pool's sentences is chosen, from 0 to 1.

    Returns:
        For each pool, the text, and the number of passages that it writes.

    Example:
        >>> from pathlib import Path
        >>> from pyfast.retrieval import Index, narrate_sentences
        >>> index = Index(Path("IDX"))
        >>> pool = index.search(["Who discovered Titan?"], 4)[0]
        >>> ((text, passages),) = narrate_sentences(index, [(pool, "Who discovered Titan?")], 4000, 0.5)
        >>> text.startswith("[1] ") and passages <= 4
        True
    """
    offsets, passages, scores = stack_pools([pool for pool, _ in items])
    corpus, segments = index.corpus, index.passages[passages].tolist()
    units = [_units(index, segment) for segment in segments]
    cuts, flat = ends(units), [unit for some in units for unit in some]
    texts = [corpus.content(unit) if len(some) > 1 else corpus.render(unit) for some in units for unit in some]
    titles = [corpus.headline(segment)[0] for segment in segments]
    lengths = np.array([len(text) for text in texts], np.int64)
    counted, terms = count_terms([*texts, *titles, *(question for _, question in items)], index.analysis)
    weights = index.idfs(index.terms.find(terms)) / math.log(1 + len(index.passages))  # 1: in one passage only
    counted.data = weights[counted.indices].astype(np.float32)
    counted.indptr, counted.indices = counted.indptr.astype(np.int32), counted.indices.astype(np.int32)
    firsts = np.array([text.partition(" ")[0].lower() in _PRONOUNS for text in texts], np.uint8)
    whole = np.diff(np.append(0, np.cumsum(lengths))[cuts[offsets]])
    budgets = np.ceil(share * whole).astype(np.int64)
    kept = ops.select_sentences(counted, offsets, cuts, scores, lengths, firsts, budgets)
    lines = [
        _line(index, segment, flat[begin:end], texts[begin:end], kept[begin:end])
        for segment, (begin, end) in zip(segments, pairwise(cuts.tolist()), strict=True)
    ]
    written = np.flatnonzero([line != "" for line in lines]).astype(np.int32)
    places = np.searchsorted(written, offsets)
    narratives = ops.narrate(utf8(lines), places, written, characters)
    return list(zip(narratives, np.diff(places).tolist(), strict=True))


def _units(index: Index, segment: int) -> Sequence[int]:
    """Return the sentences of a paragraph, or any other passage itself."""
    corpus = index.corpus
    is_text = corpus.level[segment] == Level.PARAGRAPH
    return range(segment + 1, int(corpus.subtree_end[segment])) or [segment] if is_text else [segment]


def _line(index: Index, segment: int, units: Sequence[int], texts: Sequence[str], kept: Bool) -> str:
    """Write the chosen sentences of a passage on one line. The line is empty if none is chosen."""
    places = np.flatnonzero(kept).tolist()
    if len(places) == len(units):
        return index.corpus.render(segment)
    if not places:
        return ""
    parts = [texts[places[0]]]
    for before, place in pairwise(places):
        parts.append((" " if place == before + 1 else _LEFT_OUT) + texts[place])
    return index.corpus.text_line(units[places[0]], "".join(parts))
