"""A column of the matrix of thought: its texts, and how prompts and the trace show them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

import numpy as np

from pyfast.engine import Context
from pyfast.retrieval import Index, ScoredSegments, segment_ids
from pyfast.systems.mtqa.knowledge_units import KnowledgeUnit

NUMBER = 6
"""The maximum length of a knowledge unit's number in a prompt, in characters"""


@dataclass(slots=True)
class Column:
    """A column of the matrix of thought, while it is being filled."""

    units: list[KnowledgeUnit] = field(default_factory=list)
    """The knowledge units in the prompts of the thought nodes"""
    thoughts: list[list[str]] = field(default_factory=list)
    """The paragraphs of each thought node"""
    seen: list[int] = field(default_factory=list)
    """For each thought node: how many paragraphs of the node above were in its prompt"""
    correcting: list[KnowledgeUnit] = field(default_factory=list)
    """The knowledge units in the prompt of the summary node"""
    summary: list[str] = field(default_factory=list)
    """The paragraphs of the summary node"""
    answer: str = ""
    orders: list[list[str]] = field(default_factory=list)
    """The knowledge units in the question's prompts so far, as text, shared by all columns"""
    earlier_units: bool = False
    """Whether a prompt may contain knowledge units of earlier prompts, for a longer common beginning"""
    shown: dict[KnowledgeUnit, None] = field(default_factory=dict)
    """The knowledge units that fitted into at least one prompt"""
    degraded: list[str] = field(default_factory=list)
    """An error message for each malformed reply of the LLM"""


def communicated(thought: Sequence[str], weight: float) -> list[str]:
    """Return the paragraphs of a thought that the next node sees (MTQA's paper, equation 8).

    Of n paragraphs, these are the last ⌈weight · n⌉, because the conclusion is at the end.
    """
    count = ceil(round(weight * len(thought), 9))  # 0.3 * 10 can be 3.0000000000000004.
    return list(thought[len(thought) - count :])


def continuing(texts: Sequence[str], orders: list[list[str]], room: int = 0) -> list[str]:
    """Order knowledge units so that the longest possible beginning is in an LLM server's prefix cache: first
    those with which an earlier prompt of the question begins, then the others, best first. This beginning can
    contain further units, of at most `room` characters. Adds the result to `orders`."""
    given, first, most = set(texts), list[str](), 0
    for order in orders:
        own = other = 0
        for end, text in enumerate(order, start=1):
            if text in given:
                own += len(text)
                if own > most:
                    first, most = order[:end], own
            elif (other := other + len(text) + NUMBER) > room:
                break
    orders.append(list(dict.fromkeys([*first, *texts])))
    return orders[-1]


def under(heading: str, texts: Sequence[str]) -> str:
    """Write texts under a heading, one per line. Without texts, the result is empty."""
    return "\n".join(("", heading, *texts, "")) if texts else ""


def paragraphs(given: Iterable[str]) -> list[str]:
    """Remove blanks around paragraphs, and empty paragraphs. Texts are split into paragraphs at empty lines."""
    return [part.strip() for text in given for part in text.split("\n\n") if part.strip()]


def evidence(columns: Sequence[Column], ctx: Context) -> ScoredSegments:
    """Collect the source passages of all knowledge units as the evidence, those of the last summary first."""
    best: dict[int, float] = {}
    for column in reversed(columns):
        for unit in (*column.correcting, *column.units):
            best[unit.passage] = max(unit.score, best.get(unit.passage, unit.score))
    return ScoredSegments(ctx.index.passages[list(best)], np.array(list(best.values()), np.float32))


def traced(column: Column, triples: bool, index: Index | None) -> dict[str, Any]:
    """Describe a column for the trace, as JSON values. If `triples` is true, the description includes the
    triples in the column's prompts. If `index` is not None, it includes the knowledge units' segment ids."""
    lists = {"units": column.units, "correcting": column.correcting, "shown": column.shown}
    fields = {
        "thoughts": column.thoughts,
        "seen": column.seen,
        "summary": column.summary,
        "triples": list(dict.fromkeys(triple for unit in column.shown for triple in unit.triples)) * triples,
    }
    if index is not None:
        passages = {name: [unit.passage for unit in units] for name, units in lists.items()}
        fields |= {name: segment_ids(index, index.passages[each]) for name, each in passages.items() if each}
    return {**fields, "degraded": column.degraded} if column.degraded else fields
