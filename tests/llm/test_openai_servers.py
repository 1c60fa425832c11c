"""`openai:MODEL@URL1,URL2`: calls by weight, away from a dead server, and back when it lives again."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from servers import ASK, body

import pyfast
from pyfast.errors import CallError, InputError, OutageError
from pyfast.llm import LLM, open_llm


class Server:
    """One that counts, and can die and come back at its port."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.port = taken.getsockname()[1]
        self.asked = 0
        self.status = 200
        self.window = 4096
        self.gate = asyncio.Event()
        self.gate.set()
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def live(self) -> None:
        async def chat(request: web.Request) -> web.Response:
            self.asked += 1
            await self.gate.wait()
            if self.status != 200:
                return web.json_response({"error": {"message": "no"}}, status=self.status)
            return web.json_response(body("Paris"))

        async def models(request: web.Request) -> web.Response:
            return web.json_response({"data": [{"id": "m", "max_model_len": self.window}]})

        app = web.Application()
        app.router.add_post("/v1/chat/completions", chat)
        app.router.add_get("/v1/models", models)
        self._runner = web.AppRunner(app, shutdown_timeout=0.01)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True).start()

    async def die(self) -> None:
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()


@asynccontextmanager
async def pair(*living: bool, window: int = 4096, **options: Any) -> AsyncIterator[tuple[LLM, Server, Server]]:
    one, two = Server(), Server()
    two.window = window
    for server, lives in zip((one, two), living or (True, True), strict=True):
        if lives:
            await server.live()
    llm: Any = open_llm(f"openai:m@{one.url},{two.url}", **{"backoff_s": 0.01, **options})
    try:
        await llm.start()
        yield llm, one, two
    finally:
        await llm.close()
        await one.die()
        await two.die()


async def ask(llm: LLM, count: int) -> set[str]:
    return {found.text for found in await asyncio.gather(*(llm.complete(ASK) for _ in range(count)))}


@pytest.mark.parametrize(("weights", "share"), [(None, 20), ([3, 1], 30)])
async def test_calls_are_shared_by_weight(weights: Any, share: int) -> None:
    async with pair(weights=weights) as (llm, one, two):
        one.gate.clear()
        two.gate.clear()
        asking = asyncio.ensure_future(ask(llm, 40))
        async with asyncio.timeout(20):
            while one.asked + two.asked < 40:
                await asyncio.sleep(0.005)
        assert one.asked == share
        one.gate.set()
        two.gate.set()
        assert await asking == {"Paris"}


async def test_the_calls_of_a_server_that_dies_go_to_the_other_and_come_back() -> None:
    async with pair() as (llm, one, two):
        one.gate.clear()
        two.gate.clear()
        asking = asyncio.ensure_future(ask(llm, 40))
        async with asyncio.timeout(20):
            while (one.asked, two.asked) != (20, 20):
                await asyncio.sleep(0.005)
        await one.die()  # with calls in progress
        two.gate.set()
        assert await asking == {"Paris"} and two.asked == 40
        before = one.asked
        assert await ask(llm, 40) == {"Paris"} and one.asked == before
        one.gate.set()
        await one.live()
        async with asyncio.timeout(20):
            while one.asked < before + 10:
                assert await ask(llm, 4) == {"Paris"}


@pytest.mark.parametrize("status", [401, 500, 503])
async def test_one_that_refuses_is_as_good_as_dead(status: int) -> None:
    async with pair() as (llm, one, two):
        one.status = status
        assert await ask(llm, 40) == {"Paris"} and two.asked == 40


async def test_one_that_is_down_at_the_start_joins_later() -> None:
    async with pair(True, False) as (llm, _, two):
        assert await ask(llm, 10) == {"Paris"}
        await two.live()
        async with asyncio.timeout(20):
            while two.asked < 10:
                assert await ask(llm, 4) == {"Paris"}


@pytest.mark.parametrize("living", [(True, False), (False, True)])
async def test_one_that_comes_back_is_used_with_one_call_at_a_time_too(living: tuple[bool, bool]) -> None:
    """With the first call after its rest, and with no call more than the questions."""
    async with pair(*living, backoff_s=0.2) as (llm, one, two):
        alive, dead = (one, two) if living[0] else (two, one)
        for _ in range(3):
            await llm.complete(ASK)
        await dead.live()
        await asyncio.sleep(0.5)  # The rest after one failure lasts 0.4 s.
        await llm.complete(ASK)
        assert (alive.asked, dead.asked) == (3, 1)


async def test_one_that_hangs_when_it_comes_back_takes_one_call_only() -> None:
    async with pair(True, False, backoff_s=0.2) as (llm, one, two):
        two.gate.clear()
        await two.live()
        await asyncio.sleep(0.5)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(llm.complete(ASK), 0.5)
        assert await ask(llm, 1) == {"Paris"} and (one.asked, two.asked) == (1, 1)


async def test_an_outage_of_all_is_one() -> None:
    async with pair(attempts=2) as (llm, one, two):
        await one.die()
        await two.die()
        with pytest.raises(OutageError, match="nothing answers"):
            await llm.complete(ASK)
    with pytest.raises(pyfast.errors.LLMUnavailableError, match="nothing answers"):
        async with pair(False, False):
            pass


async def test_a_request_that_is_refused_is_asked_of_one_server_alone() -> None:
    async with pair() as (llm, one, two):
        await asyncio.gather(*(llm.complete(ASK) for _ in range(4)))
        before = one.asked, two.asked
        assert min(before) > 0
        one.status = two.status = 422
        with pytest.raises(CallError):
            await llm.complete(ASK)
        assert one.asked + two.asked == sum(before) + 1


async def test_the_model_is_one_wherever_it_is_served() -> None:
    async with pair(concurrency=5, window=2048) as (llm, one, two):
        both: Any = llm
        assert both.fingerprint == open_llm(f"openai:m@{two.url}").fingerprint
        assert both.spec == f"openai:m@{one.url}/v1,{two.url}/v1"
        assert (both.slots, both.context_window) == (10, 2048)


@pytest.mark.parametrize(
    ("spec", "options", "fault"),
    [
        ("openai:m@http://a,http://b", {"weights": [1]}, "weights: expected 2 numbers"),
        ("openai:m@http://a,http://b", {"weights": [1, 0]}, "weights: expected 2 numbers"),
        ("openai:m@http://a,http://b", {"weights": "1,2"}, "weights: expected 2 numbers"),
        ("openai:m@http://a,http://a", {}, "given twice"),
        ("openai:m@http://a,http://u:p@b", {}, "must not contain a password"),
        ("openai:m@http://a,http://b", {"nonsense": 1}, "nonsense"),
        ("openai:m@http://a", {"weights": [1]}, "weights"),
    ],
)
def test_what_does_not_fit_is_refused(spec: str, options: dict[str, Any], fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        open_llm(spec, **options)
