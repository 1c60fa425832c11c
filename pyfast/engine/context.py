"""What a system may ask for. Every `await` here is a batch point."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from pydantic import BaseModel

from pyfast import ops
from pyfast.engine.batching import BatchPoint
from pyfast.engine.prompt import Prompt
from pyfast.errors import CallError
from pyfast.llm import Backend
from pyfast.ops._arrays import Float32
from pyfast.retrieval import Index, Pool

M = TypeVar("M", bound=BaseModel)
Rank = Literal["graph_rank", "bridge_rank"]

# Some tokens are words of three characters, names are cut finer: a context of this many characters per token
# fits in practice. Where it does not, the backend refuses the call and the question fails alone.
_CHARACTERS_PER_TOKEN = 3.0
_TOKENS_FOR_INSTRUCTIONS = 400


@dataclass(frozen=True, slots=True)
class Curation:
    """How a pool becomes a context: the parameters of `Context.curate`."""

    least: int
    most: int
    alpha: float = 0.85
    rank: Rank = "graph_rank"
    per_kind: int = 2


class Engine:
    """The batch points that all questions of a run share."""

    def __init__(self, index: Index | None, llm: Backend, executor: Executor) -> None:
        self.index = index
        self.llm = llm
        self._executor = executor
        self._points: dict[Hashable, BatchPoint[Any, Any]] = {}

    def point(
        self, key: Hashable, work: Callable[[Sequence[Any]], Sequence[Any]], limit: int = 4096
    ) -> BatchPoint[Any, Any]:
        """The batch point of all calls that share `key`: same work, same parameters."""
        point = self._points.get(key)
        if point is None:
            point = self._points[key] = BatchPoint(work, self._executor, limit)
        return point


class Context:
    """One question's view of the engine."""

    def __init__(self, engine: Engine, question: str) -> None:
        self._engine = engine
        self._question = question
        self.llm_calls = 0

    @property
    def index(self) -> Index:
        """The index of the run. Raises `CallError` where the run has none."""
        if self._engine.index is None:
            raise CallError("this system retrieves: the run needs an index")
        return self._engine.index

    async def generate(self, prompt: Prompt[M], **fields: str) -> M:
        """One LLM call. Raises `CallError` where it fails or its answer breaks the schema."""
        self.llm_calls += 1
        # The place of the journal: (question, number of the call) names a completion for good.
        completion = await self._engine.llm.complete(prompt.request(fields, temperature=0.0, seed=0))
        return prompt.parse(completion)

    async def retrieve(self, query: str, k: int) -> Pool:
        """The `k` best units for a query; batched into one index search."""
        index = self.index
        pool: Pool = await self._engine.point(("retrieve", k), lambda queries: index.search(queries, k))(query)
        return pool

    async def curate(self, pool: Pool, how: Curation) -> Pool:
        """The nodes of the pool's evidence graph that make the context, with their scores, best first.

        Structural score (weighted degree in closed form, or `bridge_rank`), GraphRank, pruning: each one native
        call for all pools that wait.
        """
        if not len(pool):
            return pool
        index = self.index
        work = self._engine.point(("curate", how), lambda items: curate(index, items, how))
        kept: Pool = await work((pool, self._question))
        return kept

    async def bridge_select(self, pool: Pool, beta: float) -> Float32:
        """The pool's scores after the bridge-aware selector (algorithm 1 of N2N-GQA)."""
        if not len(pool):
            return pool.scores
        index = self.index
        work = self._engine.point(("bridge_select", beta), lambda pools: bridge_select(index, pools, beta))
        boosted: Float32 = await work(pool)
        return boosted

    def narrative(self, pool: Pool, max_tokens: int) -> str:
        """The pool's units as numbered lines, best first, as many as the model's window holds.

        `max_tokens` is kept free for the answer.
        """
        window = self._engine.llm.context_window - max_tokens - _TOKENS_FOR_INSTRUCTIONS
        room = max(int(window * _CHARACTERS_PER_TOKEN), 200)
        lines: list[str] = []
        for number, unit in enumerate(pool.units.tolist(), start=1):
            line = f"[{number}] {self.index.text(unit)}"
            if len(line) > room:
                if not lines:
                    lines.append(line[:room])
                break
            lines.append(line)
            room -= len(line) + 1
        return "\n".join(lines)


def _stack(pools: Sequence[Pool]) -> tuple[Any, Any, Any]:
    offsets = np.concatenate([[0], np.cumsum([len(pool) for pool in pools])]).astype(np.int64)
    return offsets, np.concatenate([p.units for p in pools]), np.concatenate([p.scores for p in pools])


def curate(index: Index, items: Sequence[tuple[Pool, str]], how: Curation) -> list[Pool]:
    """`Context.curate` for many pools at once; each with its question."""
    pools = [pool for pool, _ in items]
    offsets, units, semantic = _stack(pools)
    if how.rank == "bridge_rank":
        terms = [index.question_terms(question) for _, question in items]
        term_offsets = np.concatenate([[0], np.cumsum([len(t) for t in terms])]).astype(np.int64)
        masked = np.array([t for ids in terms for t in ids], dtype=np.int32)
        scores = ops.bridge_rank(index.X, offsets, units, semantic, (term_offsets, masked))
    else:
        degree = ops.weighted_degree(index.X, offsets, units)
        scores = ops.graph_rank(semantic, degree, offsets, how.alpha)
    kept_offsets, nodes = ops.prune(scores, index.is_table[units], offsets, how.least, how.most, how.per_kind)
    places = nodes + np.repeat(offsets[:-1], np.diff(kept_offsets))
    bounds = kept_offsets[1:-1]
    return [
        Pool(u, s) for u, s in zip(np.split(units[places], bounds), np.split(scores[places], bounds), strict=True)
    ]


def bridge_select(index: Index, pools: Sequence[Pool], beta: float) -> list[Float32]:
    """`Context.bridge_select` for many pools at once."""
    offsets, units, semantic = _stack(pools)
    boosted = ops.bridge_select(index.X, offsets, units, semantic, index.is_table[units], index.cells, beta)
    return np.split(boosted, offsets[1:-1])
