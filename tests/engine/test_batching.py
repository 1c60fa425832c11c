"""Batch points: what joins a batch, and that nobody in it harms another."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pyfast.engine.batch_points import BatchPoint
from pyfast.engine.journal.ledger import Stage

STAGE = Stage()


class Double:
    """Doubles numbers, a batch at a time; strings are poison. Remembers the batches."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.go = threading.Event()
        self.go.set()

    def __call__(self, items: Sequence[Any]) -> list[Any]:
        self.batches.append(list(items))
        assert self.go.wait(10)
        if any(isinstance(item, str) for item in items):
            raise ValueError("poison")
        return [2 * item for item in items]


def run(main: Callable[[BatchPoint[Any, Any], Double], Coroutine[Any, Any, Any]], limit: int = 4096) -> Any:
    async def inside() -> Any:
        with ThreadPoolExecutor(1) as executor:
            double = Double()
            return await asyncio.wait_for(main(BatchPoint(double, executor, limit), double), 20)

    return asyncio.run(inside())


def test_coroutines_at_different_stages_share_batches() -> None:
    async def main(point: BatchPoint[int, int], double: Double) -> None:
        async def question(hops: int) -> int:
            value = hops
            for _ in range(hops):
                await asyncio.sleep(0)
                value = await point(value, STAGE)
            return value

        values = await asyncio.gather(*(question(hops) for hops in range(1, 9)))
        assert values == [hops << hops for hops in range(1, 9)]
        # As many batches as the longest has hops, not one for each of the 36 calls.
        assert [len(batch) for batch in double.batches] == [8, 7, 6, 5, 4, 3, 2, 1]

    run(main)


def test_latecomers_are_waited_for_while_any_can_go_further() -> None:
    async def main(point: BatchPoint[int, int], double: Double) -> None:
        async def question(steps: int) -> int:
            for _ in range(steps):
                await asyncio.sleep(0)
            return await point(steps, STAGE)

        await asyncio.gather(*(question(steps) for steps in range(20)))
        assert len(double.batches) == 1

    run(main)


def test_nobody_waits_for_the_limit() -> None:
    async def main(point: BatchPoint[int, int], double: Double) -> None:
        assert await point(1, STAGE) == 2
        assert double.batches == [[1]]

    run(main)


def test_the_limit_cuts_batches() -> None:
    async def main(point: BatchPoint[int, int], double: Double) -> None:
        assert await asyncio.gather(*(point(i, STAGE) for i in range(10))) == [2 * i for i in range(10)]
        assert [len(batch) for batch in double.batches] == [4, 4, 2]

    run(main, limit=4)


def test_what_comes_while_a_batch_runs_makes_the_next() -> None:
    async def main(point: BatchPoint[int, int], double: Double) -> None:
        double.go.clear()
        first = asyncio.ensure_future(point(0, STAGE))
        while not double.batches:
            await asyncio.sleep(0.001)
        rest = []
        for i in range(1, 6):
            rest.append(asyncio.ensure_future(point(i, STAGE)))
            await asyncio.sleep(0.002)
        assert double.batches == [[0]]
        double.go.set()
        assert await asyncio.gather(first, *rest) == [0, 2, 4, 6, 8, 10]
        assert double.batches == [[0], [1, 2, 3, 4, 5]]

    run(main)


@pytest.mark.guarantee("G4")
def test_a_poison_item_fails_alone() -> None:
    async def main(point: BatchPoint[Any, Any], double: Double) -> None:
        items = [1, "poison", 3, 4, "poison", 6]
        results = await asyncio.gather(*(point(item, STAGE) for item in items), return_exceptions=True)
        assert [r for r in results if not isinstance(r, Exception)] == [2, 6, 8, 12]
        assert [str(results[i]) for i in (1, 4)] == ["poison", "poison"]
        assert await point(7, STAGE) == 14  # and the point goes on

    run(main)


@pytest.mark.parametrize("running", [False, True])
def test_one_who_is_cancelled_takes_nobody_along(running: bool) -> None:
    async def main(point: BatchPoint[int, int], double: Double) -> None:
        double.go.clear()
        tasks = [asyncio.ensure_future(point(i, STAGE)) for i in range(5)]
        await asyncio.sleep(0)
        while running and not double.batches:
            await asyncio.sleep(0.001)
        tasks[2].cancel()
        await asyncio.sleep(0)
        double.go.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(results.pop(2), asyncio.CancelledError)
        assert results == [0, 2, 6, 8]
        assert (2 in double.batches[0]) == running  # nothing is computed for one who has left
        assert await point(9, STAGE) == 18

    run(main)


def test_when_all_have_left_nothing_is_computed() -> None:
    async def main(point: BatchPoint[int, int], double: Double) -> None:
        tasks = [asyncio.ensure_future(point(i, STAGE)) for i in range(3)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.01)
        assert double.batches == []
        assert await point(1, STAGE) == 2

    run(main)


def test_too_few_results_are_an_error_not_a_wait() -> None:
    async def inside() -> None:
        with ThreadPoolExecutor(1) as executor:
            point: BatchPoint[int, int] = BatchPoint(lambda items: list(items)[1:], executor)
            waiting = asyncio.gather(point(1, STAGE), point(2, STAGE), return_exceptions=True)
            results = await asyncio.wait_for(waiting, 10)
            assert all(isinstance(result, RuntimeError) for result in results)

    asyncio.run(inside())
