"""What a system may ask for: any work of a lower room in batches, and contexts that leave the window its room."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from scripted import Scripted

from pyfast.engine import Context, Question
from pyfast.engine.context import Runtime
from pyfast.engine.models import Models
from pyfast.errors import CallError, InputError
from pyfast.llm import Request, open_llm
from pyfast.retrieval import Index, fuse
from pyfast.systems.prompts import ANSWER, DIRECT


def run(
    main: Callable[[Callable[[], Context]], Coroutine[Any, Any, Any]], index: Index | None, llm: Any = None
) -> Any:
    async def inside() -> Any:
        with ThreadPoolExecutor(2) as executor:
            runtime = Runtime(index, Models(llm or open_llm("instant")), executor)
            return await main(lambda: Context(runtime, Question("q", "?")))

    return asyncio.run(inside())


def test_any_work_is_batched_by_its_parameters(small: Index) -> None:
    batches: list[tuple[list[int], int]] = []

    def add(index: Index, items: Sequence[int], to: int) -> list[int]:
        batches.append((list(items), to))
        return [item + to for item in items]

    async def main(context: Callable[[], Context]) -> None:
        calls = [context().call(add, i, 100 if i % 2 else 200) for i in range(6)]
        assert await asyncio.gather(*calls) == [200, 101, 202, 103, 204, 105]

    run(main, small)
    assert sorted(batches) == [([0, 2, 4], 200), ([1, 3, 5], 100)]


def test_retrieval_is_the_indexs_search(small: Index) -> None:
    async def main(context: Callable[[], Context]) -> None:
        queries = ["moon of Saturn", "", "first on Mars"]
        pools = small.search(queries, 7)
        expected = [list(pool) for pool in pools]
        assert list(await context().retrieve_all(queries[1:], 7, pools[:1])) == list(fuse([pools], 7)[0])
        ctx = context()
        assert [list(await ctx.retrieve(query, 7)) for query in queries] == expected
        evidence = ctx.evidence(await ctx.retrieve(queries[0], 7))
        found = zip(evidence.segments.tolist(), evidence.scores.tolist(), strict=True)
        assert [(small.passages[u], s) for u, s in expected[0]] == list(found)

    run(main, small)


def test_without_an_index_there_is_nothing_to_retrieve() -> None:
    async def main(context: Callable[[], Context]) -> None:
        for ask in (lambda: context().retrieve("x", 3), lambda: context().retrieve_all(["x"], 3)):
            with pytest.raises(InputError, match="needs an index"):
                await ask()

    run(main, None)


@pytest.mark.parametrize("window", [1, 500, 1000, 2048, 10**6])
def test_a_context_leaves_room_for_the_instructions_and_the_answer(hybridqa: Index, window: int) -> None:
    async def main(context: Callable[[], Context]) -> str:
        ctx = context()
        return await ctx.narrative(await ctx.retrieve("the driver of the Grand Prix", 50), ANSWER)

    text = run(main, hybridqa, open_llm("instant", context_window=window))
    assert 0 < len(text) <= max(3 * (window - ANSWER.max_tokens - 500), 200)
    if window == 2048:
        assert len(text) > 3 * (window - ANSWER.max_tokens - 500) - 1000  # nor is the room wasted


def test_calls_are_counted_also_those_that_fail() -> None:
    def reply(request: Request) -> Any:
        return CallError("no") if "bad" in request.messages[-1].content else {"answer": "yes"}

    async def main(context: Callable[[], Context]) -> None:
        ctx = context()
        assert (await ctx.generate(DIRECT, question="good")).answer == "yes"
        with pytest.raises(CallError):
            await ctx.generate(DIRECT, question="bad")
        assert ctx.ledger.llm_calls == 2

    llm = Scripted(direct=reply)
    run(main, None, llm)
    request = llm.calls[0][1]
    assert (request.temperature, request.seed, request.schema) == (0.0, 0, DIRECT.schema)
