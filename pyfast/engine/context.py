"""What a system may ask for. Every `await` here is a batch point."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple, Unpack

from pydantic import BaseModel

from pyfast.engine.batching import BatchPoint
from pyfast.engine.prompt import Prompt
from pyfast.engine.questions import Question
from pyfast.engine.records import Evidence
from pyfast.errors import InputError
from pyfast.llm import Backend
from pyfast.retrieval import Index, Pool, narrate

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")
R = TypeVar("R")
Ts = TypeVarTuple("Ts")

# Common tokens are whole words, names are cut finer: at this many characters per token a context fits in
# practice. Where it does not, the backend refuses the call and the question fails alone.
_CHARACTERS_PER_TOKEN = 3.0
_TOKENS_FOR_INSTRUCTIONS = 500


class Engine:
    """What all questions of a run share: index, LLM, batch points."""

    def __init__(self, index: Index | None, llm: Backend, executor: Executor) -> None:
        self.index = index
        self.llm = llm
        self._executor = executor
        self._points: dict[Hashable, BatchPoint[Any, Any]] = {}

    def required_index(self) -> Index:
        """The index. Raises `InputError` where the run has none."""
        if self.index is None:
            raise InputError("this system retrieves: the run needs an index")
        return self.index

    def point(self, work: Callable[..., Sequence[Any]], *parameters: Hashable) -> BatchPoint[Any, Any]:
        """The batch point of all calls of `work` with the same parameters."""
        key = (work, parameters)
        point = self._points.get(key)
        if point is None:
            index = self.required_index()
            point = self._points[key] = BatchPoint(lambda items: work(index, items, *parameters), self._executor)
        return point


class Context:
    """One question's view of the engine."""

    def __init__(self, engine: Engine, question: Question) -> None:
        self._engine = engine
        self.question = question
        self.llm_calls = 0

    @property
    def index(self) -> Index:
        """The index of the run. Raises `InputError` where it has none."""
        return self._engine.required_index()

    async def generate(self, prompt: Prompt[M], **fields: str) -> M:
        """One LLM call. Raises `CallError`; of its kinds `AnswerError` where the answer is not as asked."""
        self.llm_calls += 1
        # The place of the journal: (question, request, how often it was made) names a completion for good.
        completion = await self._engine.llm.complete(prompt.request(fields, temperature=0.0, seed=0))
        return prompt.parse(completion)

    async def call(
        self, work: Callable[[Index, Sequence[T], Unpack[Ts]], Sequence[R]], item: T, *parameters: *Ts
    ) -> R:
        """`work(index, [item], *parameters)[0]`, done for all who wait for the same work in one call."""
        result: R = await self._engine.point(work, *parameters)(item)
        return result

    async def retrieve(self, query: str, k: int) -> Pool:
        """The `k` best units for a query; batched into one index search."""
        return await self.call(Index.search, query, k)

    async def retrieve_all(self, queries: Sequence[str], k: int) -> list[Pool]:
        """The `k` best units for each of several queries."""
        return await self._engine.point(Index.search, k).all(queries)

    def evidence(self, pool: Pool) -> list[Evidence]:
        """The pool's units as evidence for an answer."""
        segments = self.index.units[pool.units].tolist()
        return [Evidence(segment, score) for segment, (_, score) in zip(segments, pool, strict=True)]

    async def narrative(self, pool: Pool, answer: Prompt[Any]) -> str:
        """The pool's units as numbered lines, best first, as many as fit the window beside the prompt `answer`."""
        tokens = self._engine.llm.context_window - answer.max_tokens - _TOKENS_FOR_INSTRUCTIONS
        return await self.call(narrate, pool, max(int(tokens * _CHARACTERS_PER_TOKEN), 200))
