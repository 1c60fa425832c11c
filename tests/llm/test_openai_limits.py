"""How often and how long a server is asked: slots, rate limits, pauses, gateways whose server is gone."""

import asyncio
import time
from email.utils import formatdate

import pytest
from aiohttp import web
from servers import ASK, body, replying, serving

from pyfast.errors import CallError, LLMUnavailableError


@pytest.mark.parametrize("date", [False, True])
async def test_retry_after_is_honoured(date: bool) -> None:
    wait = formatdate(time.time() + 2, usegmt=True) if date else "1"
    handler, asked = replying(web.Response(status=429, headers={"Retry-After": wait}), body())
    async with serving(handler) as backend:
        started = time.monotonic()
        assert (await backend.complete(ASK)).text == "Paris"
        assert 0.5 < time.monotonic() - started < 10
    assert len(asked) == 2


async def test_concurrency_is_bounded_and_waiting_is_not_timed() -> None:
    running, most = 0, 0

    async def slow(request: web.Request) -> web.Response:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.1)
        running -= 1
        return web.json_response(body())

    async with serving(slow, concurrency=3, timeout_s=0.5) as backend:
        done = await asyncio.gather(*(backend.complete(ASK) for _ in range(24)))  # 0.8 s in all
    assert most == 3 and len(done) == 24


async def test_cancelled_calls_give_their_places_back() -> None:
    hanging = True

    async def handler(request: web.Request) -> web.Response:
        if hanging:
            await asyncio.sleep(30)
        return web.json_response(body())

    async with serving(handler, concurrency=2) as backend:
        for _ in range(3):
            calls = [asyncio.create_task(backend.complete(ASK)) for _ in range(6)]
            await asyncio.sleep(0.05)
            for call in calls:
                call.cancel()
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(result, asyncio.CancelledError) for result in results)
        hanging = False
        async with asyncio.timeout(5):
            assert len(await asyncio.gather(*(backend.complete(ASK) for _ in range(6)))) == 6


async def test_closing_under_a_call() -> None:
    async def hang(request: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    async with serving(hang) as backend:
        call = asyncio.create_task(backend.complete(ASK))
        await asyncio.sleep(0.05)
        await backend.close()
        await backend.close()
        with pytest.raises(LLMUnavailableError, match="closed"):
            async with asyncio.timeout(5):
                await call


async def test_a_pause_is_everybodys() -> None:
    came: list[float] = []

    async def handler(request: web.Request) -> web.Response:
        came.append(time.monotonic())
        if len(came) == 1:
            return web.Response(status=429, headers={"Retry-After": "2"})
        return web.json_response(body())

    # The pause takes nothing of the time that each call has.
    async with serving(handler, timeout_s=1.5, attempts=1) as backend:
        first = asyncio.create_task(backend.complete(ASK))
        while not came:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        others = [asyncio.create_task(backend.complete(ASK)) for _ in range(20)]
        for other in others[10:]:
            other.cancel()
        done = await asyncio.gather(first, *others, return_exceptions=True)
    assert [isinstance(answer, BaseException) for answer in done] == [False] * 11 + [True] * 10
    assert len(came) == 12 and came[1] - came[0] > 1.95


@pytest.mark.parametrize("wait", ["1e9", "inf", "nan", "-5", "soon", "", "Fri, 99 Foo", formatdate(0)])
async def test_a_strange_retry_after(wait: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyfast.llm.openai.LONGEST_PAUSE", 0.1)
    handler, asked = replying(web.Response(status=429, headers={"Retry-After": wait}), body())
    async with serving(handler, attempts=2) as backend, asyncio.timeout(10):
        assert (await backend.complete(ASK)).text == "Paris"
    assert len(asked) == 2


async def test_a_narrow_server_is_waited_for() -> None:
    """Ten times as many calls at once as it takes: each is sent away often, and none fails."""
    room, refused = 4, 0

    async def handler(request: web.Request) -> web.Response:
        nonlocal room, refused
        if not room:
            refused += 1
            return web.Response(status=429, headers={"Retry-After": "0.05"})
        room -= 1
        asyncio.get_running_loop().call_later(0.1, refill)
        return web.json_response(body())

    def refill() -> None:
        nonlocal room
        room += 1

    async with serving(handler, concurrency=40, attempts=2) as backend, asyncio.timeout(30):
        assert len(await asyncio.gather(*(backend.complete(ASK) for _ in range(80)))) == 80
    assert refused > 80 * 0.3


async def test_a_server_that_has_never_room() -> None:
    handler, asked = replying(web.Response(status=429, body=b"full", headers={"Retry-After": "0.01"}))
    async with serving(handler, timeout_s=0.3) as backend, asyncio.timeout(10):
        with pytest.raises(CallError, match=r"no answer within 0\.3 s; before that, .* answered 429: full"):
            await backend.complete(ASK)
    assert len(asked) > 2


async def test_requests_per_minute() -> None:
    calls, per_minute = 12, 600  # one in 0.1 s
    handler, asked = replying(web.Response(status=500), body())
    # Less time for each call than they wait for their turn.
    async with serving(handler, requests_per_minute=per_minute, timeout_s=1) as backend:
        started = time.monotonic()
        await asyncio.gather(*(backend.complete(ASK) for _ in range(calls)))
        spent = time.monotonic() - started
    assert len(asked) == calls + 1, "an attempt more, which counts"
    # The first goes at once, and a timer that was late may be made up for once.
    assert spent > (calls - 1) * 60 / per_minute - 0.01


async def test_waiting_for_a_turn_can_be_cancelled() -> None:
    handler, asked = replying(body())
    async with serving(handler, requests_per_minute=600, concurrency=3) as backend:
        await backend.complete(ASK)
        calls = [asyncio.create_task(backend.complete(ASK)) for _ in range(30)]
        await asyncio.sleep(0.02)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        async with asyncio.timeout(10):
            await asyncio.gather(*(backend.complete(ASK) for _ in range(6)))
    assert 7 <= len(asked) < 15, "those cancelled took no turn"


async def test_closing_in_a_pause() -> None:
    handler, _ = replying(web.Response(status=429, headers={"Retry-After": "1"}))
    async with serving(handler) as backend:
        calls = [asyncio.create_task(backend.complete(ASK)) for _ in range(3)]
        await asyncio.sleep(0.2)
        await backend.close()
        async with asyncio.timeout(10):
            for error in await asyncio.gather(*calls, return_exceptions=True):
                assert isinstance(error, LLMUnavailableError)


@pytest.mark.parametrize("status", [502, 503, 504])
async def test_a_gateway_without_a_server_stops_the_run(status: int) -> None:
    gone = web.Response(status=status)
    handler, asked = replying(*[gone] * 22, body(), gone)
    async with serving(handler, attempts=2, concurrency=4) as backend:
        for _ in range(11):
            with pytest.raises(CallError):
                await backend.complete(ASK)
        await backend.complete(ASK)  # one success, and counting starts anew
        for _ in range(19):
            with pytest.raises(CallError):
                await backend.complete(ASK)
        for _ in range(2):
            with pytest.raises(LLMUnavailableError, match=rf"the gateway at http.* answers {status} only"):
                await backend.complete(ASK)
    assert len(asked) == 22 + 1 + 2 * 21


async def test_more_slots_more_patience() -> None:
    handler, _ = replying(web.Response(status=503))
    async with serving(handler, attempts=1, concurrency=16) as backend:
        errors = await asyncio.gather(*(backend.complete(ASK) for _ in range(33)), return_exceptions=True)
    assert sum(isinstance(error, CallError) for error in errors) == 31
    assert sum(isinstance(error, LLMUnavailableError) for error in errors) == 2


@pytest.mark.parametrize("status", [429, 500])
async def test_a_busy_server_is_not_a_dead_one(status: int) -> None:
    handler, _ = replying(web.Response(status=status))
    async with serving(handler, attempts=1, concurrency=4) as backend:
        for _ in range(30):
            with pytest.raises(CallError):
                await backend.complete(ASK)
