"""How often and how long a server is asked: slots, rate limits, pauses."""

import asyncio
import time
from email.utils import formatdate

import pytest
from aiohttp import web
from servers import ASK, body, replying, serving

from pyfast.errors import LLMUnavailableError, OutageError
from pyfast.llm import Request, open_llm
from pyfast.llm.protocol import PROBE


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


async def test_a_probe_does_not_wait_for_calls_that_hang() -> None:
    """Otherwise two calls that hang look like an outage, one after the other."""

    async def handler(request: web.Request) -> web.Response:
        if (await request.json())["messages"][-1]["content"] == ASK.messages[-1].content:
            await asyncio.sleep(30)
        return web.json_response(body())

    async with serving(handler, concurrency=1) as backend:
        call = asyncio.create_task(backend.complete(ASK))
        await asyncio.sleep(0.05)
        async with asyncio.timeout(5):
            assert (await backend.complete(PROBE)).text == "Paris"
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)


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
    async with serving(handler, timeout_s=1.5, attempts=2) as backend:
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


@pytest.mark.parametrize("wait", ["nan", "-5", "soon", "", "Fri, 99 Foo", formatdate(0)])
async def test_a_strange_retry_after(wait: str) -> None:
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
    async with serving(handler, timeout_s=0.3, attempts=1000) as backend, asyncio.timeout(10):
        with pytest.raises(OutageError, match=r"did not answer within 0\.3 s; before that, .* answered 429: full"):
            await backend.complete(ASK)
    assert len(asked) > 2


async def test_a_server_that_sends_everybody_away_is_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """However soon it would have them back: who waits for it hears so, and not after five minutes."""
    monkeypatch.setattr("pyfast.llm.openai.LONGEST_REFUSAL", 0.3)
    handler, asked = replying(web.Response(status=429, body=b"full", headers={"Retry-After": "0.05"}))
    async with serving(handler, attempts=1000) as backend, asyncio.timeout(10):
        with pytest.raises(OutageError, match="answered 429: full") as error:
            await backend.complete(ASK)
    assert error.value.kind == "busy" and len(asked) > 3


@pytest.mark.parametrize("attempts", [1, 3])
async def test_a_rate_limit_counts_as_an_attempt_while_no_call_is_answered(attempts: int) -> None:
    handler, asked = replying(web.Response(status=429, body=b"full", headers={"Retry-After": "0.05"}))
    async with serving(handler, attempts=attempts) as backend, asyncio.timeout(10):
        with pytest.raises(OutageError, match="answered 429: full") as error:
            await backend.complete(ASK)
        assert (error.value.retry_after, len(asked)) == (0.05, attempts)
        with pytest.raises(OutageError, match="answered 429: full"):
            await backend.complete(PROBE)
        assert len(asked) == attempts + 1, "a test call is not repeated"


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


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_a_server_that_takes_no_call_is_out(status: int) -> None:
    handler, asked = replying(web.Response(status=status, body=b"no"))
    async with serving(handler, attempts=2) as backend:
        with pytest.raises(OutageError, match=f"answered {status}: no") as error:
            await backend.complete(ASK)
    assert error.value.kind == ("busy" if status == 429 else "down") and len(asked) == 2


async def test_a_long_retry_after_is_told_at_once() -> None:
    handler, asked = replying(web.Response(status=429, headers={"Retry-After": "7200"}))
    async with serving(handler) as backend, asyncio.timeout(10):
        with pytest.raises(OutageError, match="answered 429") as error:
            await backend.complete(ASK)
    assert error.value.retry_after == 7200 and len(asked) == 1


async def test_tokens_per_minute() -> None:
    """By what the server counts, once it has; the estimate before is too high here."""
    handler, asked = replying(body("Paris", prompt_tokens=40, completion_tokens=10))
    async with serving(handler, tokens_per_minute=60_000) as backend:  # one in a millisecond
        started = time.monotonic()
        for _ in range(9):
            await backend.complete(Request(ASK.messages, 200))
        one_by_one = time.monotonic() - started
        started = time.monotonic()
        await asyncio.gather(*(backend.complete(Request(ASK.messages, 200)) for _ in range(5)))
        together = time.monotonic() - started
    assert len(asked) == 14
    assert one_by_one > 8 * 0.05 - 0.01, "fifty tokens each"
    assert together > 4 * 0.2, "two hundred and more each, as far as was known"


async def test_models_of_one_server_share_its_limit() -> None:
    handler, asked = replying(body())
    async with serving(handler, requests_per_minute=600) as backend:
        port = backend.spec.rpartition(":")[2]
        other = open_llm(f"openai:other@http://127.0.0.1:{port}")
        await other.start()
        started = time.monotonic()
        await asyncio.gather(*(llm.complete(ASK) for llm in (backend, other) for _ in range(4)))
        assert time.monotonic() - started > 6 * 0.1 - 0.01 and len(asked) == 8
        await other.close()
