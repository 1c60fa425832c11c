"""An agent's actions in the corpus: searching, and looking words up in the documents found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pyfast.engine import Answer, Context
from pyfast.retrieval import Index, Pool, narrate, traced
from pyfast.retrieval.index.index import of_index
from pyfast.systems.rivals.common import NOTHING, joined

_LONGEST = 1024
"""The maximum number of a document's passages in which words are looked up"""


@dataclass
class Episode:
    """What an agent did and found."""

    steps: list[dict[str, Any]] = field(default_factory=list)
    collected: Pool = NOTHING
    page: Pool = NOTHING
    """The passages of the last search"""
    looked_up: dict[str, int] = field(default_factory=dict)
    """How often words have been looked up since the last search"""

    def result(self, text: str | None, ctx: Context) -> Answer:
        """Return the answer with all passages that the agent saw, in the order in which it saw them."""
        return Answer(text, ctx.evidence(self.collected), {"steps": self.steps})

    async def search(self, query: str, ctx: Context, k: int, characters: int) -> str:
        """Search, and return the observation."""
        self.page, self.looked_up = await ctx.retrieve(query, k), {}
        self.steps[-1] |= {"query": query, **traced(self.page)}
        return await self._observe(self.page, ctx, characters)

    async def look_up(self, words: str, ctx: Context, characters: int) -> str:
        """Return the next passage with these words, in the documents of the last search."""
        hits = await ctx.call(look_up, (self.page, words))
        number = self.looked_up[words] = self.looked_up.get(words, 0) + 1
        found = Pool(hits.passages[number - 1 : number], hits.scores[number - 1 : number])
        self.steps[-1] |= {"query": words, **traced(found)}
        shown = await self._observe(found, ctx, characters)
        return f"(result {number} of {len(hits)}) {shown}" if len(found) else shown

    async def _observe(self, pool: Pool, ctx: Context, characters: int) -> str:
        if not len(pool):
            return "Nothing was found."
        self.collected = joined(self.collected, pool)
        text = await ctx.call(narrate, pool, characters)
        if (left_out := len(pool) - text.count("\n") - 1) > 0:
            ctx.ledger.left_out["observation"] += left_out
        return text


@of_index
def look_up(index: Index, items: Sequence[tuple[Pool, str]]) -> list[Pool]:
    """For each pool, find the passages of its documents that contain certain words, in document order."""
    return [_with_words(index, pool, words.casefold()) for pool, words in items]


def _with_words(index: Index, pool: Pool, words: str) -> Pool:
    documents = list(dict.fromkeys(index.corpus.source[index.passages[pool.passages]].tolist()))
    roots = index.corpus.roots[documents]
    begins = np.searchsorted(index.passages, roots).tolist()
    ends = np.searchsorted(index.passages, index.corpus.subtree_end[roots]).tolist()
    passages = [
        passage
        for begin, end in zip(begins, ends, strict=True)
        for passage in range(begin, min(end, begin + _LONGEST))
        if words and words in index.text(passage).casefold()
    ]
    return Pool(np.array(passages, np.int32), np.zeros(len(passages), np.float32))
