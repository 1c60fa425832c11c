"""Which LLM call goes next: never too many, those of one prompt together, nobody for ever, no place lost."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyfast.engine.models import Admission
from pyfast.llm import Request, dialogue


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 60))


def request(text: str) -> Request:
    return Request(dialogue(text, "system"), 1)


async def settle() -> None:
    for _ in range(9):
        await asyncio.sleep(0)


class Crowd:
    """Calls that go in, and stay until the test lets them leave."""

    def __init__(self, limit: int) -> None:
        self.admission = Admission(limit)
        self.inside: dict[str, asyncio.Event] = {}
        self.order: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def come(self, name: str) -> None:
        self.tasks[name] = asyncio.create_task(self._stay(name))

    async def _stay(self, name: str) -> None:
        await self.admission.enter(request(name))
        self.inside[name] = asyncio.Event()
        self.order.append(name)
        try:
            await self.inside[name].wait()
        finally:
            del self.inside[name]
            self.admission.leave()

    def go(self, name: str) -> None:
        self.inside[name].set()


def test_never_more_than_the_limit() -> None:
    async def main() -> None:
        admission, inside, most = Admission(3), 0, 0

        async def call(number: int) -> None:
            nonlocal inside, most
            await admission.enter(request(str(number)))
            inside += 1
            most = max(most, inside)
            for _ in range(number % 4):
                await asyncio.sleep(0)
            inside -= 1
            admission.leave()

        await asyncio.gather(*(call(number) for number in range(200)))
        assert (most, inside, admission.running) == (3, 0, 0)

    run(main)


def test_calls_with_a_common_beginning_follow_each_other() -> None:
    async def main() -> None:
        crowd = Crowd(1)
        for name in ("first", "plan b", "answer c", "plan a", "answer b", "answer a"):
            crowd.come(name)
            await settle()
        for _ in range(6):
            crowd.go(crowd.order[-1])
            await settle()
        assert crowd.order == ["first", "answer a", "answer b", "answer c", "plan a", "plan b"]

    run(main)


def test_nobody_waits_longer_than_a_sweep_and_its_own() -> None:
    """Calls that would sort before it come all the time."""

    async def main() -> None:
        crowd = Crowd(1)
        for name in ("first", *(f"a{number}" for number in range(5))):
            crowd.come(name)
        await settle()
        crowd.go("first")  # a sweep of five begins
        await settle()
        crowd.come("z")
        for number in range(100):
            crowd.come(f"b{number:03}")
            await settle()
            crowd.go(crowd.order[-1])
            await settle()
            if "z" in crowd.order:
                break
        assert crowd.order[1:6] == [f"a{number}" for number in range(5)]
        # Of those that came after it, only the five that came in that sweep went before it.
        assert crowd.order[6:] == [*(f"b{number:03}" for number in range(5)), "z"]
        for task in crowd.tasks.values():
            task.cancel()

    run(main)


@pytest.mark.parametrize("when", ["waiting", "just let in", "inside"])
def test_who_is_cancelled_leaves_no_gap(when: str) -> None:
    async def main() -> None:
        crowd = Crowd(1)
        for name in ("a", "b", "c"):
            crowd.come(name)
        await settle()
        assert list(crowd.inside) == ["a"]
        if when != "waiting":
            crowd.go("a")
            while crowd.admission._sweep and not crowd.tasks["a"].done():  # until b has its turn, and not yet run
                await asyncio.sleep(0)
                if len(crowd.admission._sweep) == 1:
                    break
            if when == "inside":
                await settle()
        crowd.tasks["b"].cancel()
        await settle()
        if when == "waiting":
            crowd.go("a")
            await settle()
        assert list(crowd.inside) == ["c"] and crowd.admission.running == 1
        crowd.go("c")
        await settle()
        assert crowd.admission.running == 0

    run(main)


STEPS = st.tuples(st.sampled_from(["come", "leave", "cancel", "turn"]), st.integers(0, 30))


@given(st.integers(1, 4), st.lists(STEPS))
def test_no_place_is_ever_lost(limit: int, steps: list[tuple[str, int]]) -> None:
    async def main() -> None:
        crowd = Crowd(limit)
        for at, (step, number) in enumerate(steps):
            names = sorted(crowd.inside)
            if step == "come":
                crowd.come(f"{number} {at}")
            elif step == "leave" and names:
                crowd.go(names[number % len(names)])
            elif step == "cancel" and crowd.tasks:
                list(crowd.tasks.values())[number % len(crowd.tasks)].cancel()
            elif step == "turn":
                await asyncio.sleep(0)
            assert len(crowd.inside) <= crowd.admission.running <= limit
        await settle()
        left = [name for name, task in crowd.tasks.items() if not task.done()]
        assert len(crowd.inside) == crowd.admission.running == min(limit, len(left))
        while crowd.inside:
            crowd.go(min(crowd.inside))
            await settle()
        assert crowd.admission.running == 0
        assert all(task.done() for task in crowd.tasks.values())

    run(main)
