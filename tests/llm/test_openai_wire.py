"""Against servers that break HTTP, hang up, or never come to an end."""

import asyncio
import gzip
import itertools
import time
from dataclasses import replace

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port
from servers import ASK, body, http, replying, serving, speaking

from pyfast.errors import CallError, LLMUnavailableError, OutageError
from pyfast.llm import open_llm
from pyfast.llm.server_calls import LARGEST_ANSWER

GOOD = http(body())
CONTENT = GOOD.partition(b"\r\n\r\n")[2]
CHUNKS = b"".join(b"1\r\n%c\r\n" % byte for byte in CONTENT) + b"0\r\n\r\n"


@pytest.mark.parametrize(
    "reply",
    [
        http(CONTENT, version="1.0"),
        http(CONTENT, "Connection: close"),
        http(CHUNKS, "Transfer-Encoding: chunked"),
        http(gzip.compress(CONTENT), "Content-Encoding: gzip", "Connection: close"),
        b"HTTP/1.1 100 Continue\r\n\r\n" + GOOD,
        http(b" " * 100_000 + CONTENT + b"\n\n"),
    ],
    ids=["http-1.0", "no-length", "tiny-chunks", "gzip", "continue", "spaces"],
)
async def test_unusual_answers_are_understood(reply: bytes) -> None:
    async def speak(writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(reply)
        if reply.startswith(b"HTTP/1.0") or b"close" in reply:
            writer.close()

    async with speaking(speak, attempts=1, timeout_s=20) as backend:
        for _ in range(3):
            assert (await backend.complete(ASK)).text == "Paris"


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        GOOD[:-20],
        http(CHUNKS[:-40], "Transfer-Encoding: chunked"),
        http(b"zz\r\n" + CONTENT, "Transfer-Encoding: chunked"),
        http(b"-5\r\n" + CONTENT, "Transfer-Encoding: chunked"),
        http(CONTENT, "Content-Length: -1"),
        http(CONTENT, "Content-Length: 99999999999999999999999999"),
        http(CONTENT, "Content-Length: 5", "Content-Length: 6"),
        http(CONTENT, "X: " + "y" * 100_000),
        http(b"no gzip", "Content-Length: 7", "Content-Encoding: gzip"),
        http(gzip.compress(CONTENT)[:-12], "Connection: close", "Content-Encoding: gzip"),
        http(CONTENT[:-30], version="1.0"),
        http(CONTENT, status="99999 No"),
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x00\xff" * 1000,
        b"\n" * 100_000,
    ],
    ids=lambda reply: repr(reply[:60]),
)
async def test_replies_that_break_off_or_break_http(reply: bytes) -> None:
    async def speak(writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(reply if number == 1 else GOOD)
        if number == 1:
            writer.close()

    async with speaking(speak, attempts=1, timeout_s=20) as backend:
        with pytest.raises((CallError, OutageError)) as error:
            await backend.complete(ASK)
        assert "\n" not in str(error.value) and len(str(error.value)) < 500
        assert (await backend.complete(ASK)).text == "Paris"


@pytest.mark.parametrize("at_once", [0, 20, 45])
async def test_a_byte_at_a_time(at_once: int) -> None:
    head = b"HTTP/1.1 200 OK\r\nX: y\r\nContent-Length: 5000\r\n\r\n"

    async def speak(writer: asyncio.StreamWriter, number: int) -> None:
        if number > 1:
            writer.write(GOOD)
            return
        writer.write(head[:at_once])
        for byte in itertools.chain(head[at_once:], itertools.repeat(32)):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.05)

    async with speaking(speak, timeout_s=1) as backend:
        with pytest.raises(OutageError, match="did not answer within 1 s"):
            async with asyncio.timeout(10):
                await backend.complete(ASK)
        assert (await backend.complete(ASK)).text == "Paris"


async def test_an_answer_too_large() -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            for _ in range(4 * LARGEST_ANSWER >> 20):
                await response.write(b" " * (1 << 20))
        except ConnectionError:
            pass
        return response

    async with serving(endless) as backend:
        with pytest.raises(CallError, match="larger than 8 MB"):
            await backend.complete(ASK)


async def test_a_connection_cut_each_time_fails_the_call() -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"choices"')
        assert request.transport is not None
        request.transport.abort()
        return response

    async with serving(cut, attempts=3) as backend:
        with pytest.raises(OutageError, match="closed the connection"):
            await backend.complete(ASK)


async def test_a_connection_cut_once_is_forgiven() -> None:
    calls = []

    async def cut_once(request: web.Request) -> web.Response:
        calls.append(1)
        if len(calls) == 1:
            assert request.transport is not None
            request.transport.abort()
        return web.json_response(body())

    async with serving(cut_once) as backend:
        assert (await backend.complete(ASK)).text == "Paris"


async def test_nothing_listens() -> None:
    port = unused_port()
    backend = open_llm(f"openai:m@http://127.0.0.1:{port}")
    with pytest.raises(LLMUnavailableError, match=f"nothing answers at http://127.0.0.1:{port}/v1") as error:
        await backend.start()
    assert "\n" not in str(error.value)
    with pytest.raises(LLMUnavailableError, match="not running"):
        await backend.complete(ASK)


@pytest.mark.guarantee("G7")
async def test_the_server_dies_during_the_run() -> None:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", replying(body())[0])
    async with TestServer(app) as server:
        backend = open_llm(f"openai:m@http://127.0.0.1:{server.port}", attempts=3, backoff_s=0.001)
        await backend.start()
        await backend.complete(ASK)
    with pytest.raises(LLMUnavailableError, match="nothing answers"):
        await backend.complete(ASK)
    await backend.close()


async def test_a_server_that_never_answers() -> None:
    async def hang(request: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    async with serving(hang, timeout_s=0.2) as backend:
        started = time.monotonic()
        with pytest.raises(OutageError, match=r"did not answer within 0\.2 s"):
            await backend.complete(ASK)
        assert time.monotonic() - started < 5


async def test_connections_are_kept() -> None:
    peers = set()

    async def handler(request: web.Request) -> web.Response:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        return web.json_response(body())

    async with serving(handler) as backend:
        for _ in range(5):
            await backend.complete(ASK)
    assert len(peers) == 1


async def test_a_late_reply_is_nobody_elses() -> None:
    async def late(request: web.Request) -> web.Response:
        calls.append(1)
        if len(calls) == 1:
            await asyncio.sleep(1.5)
            return web.json_response(body("London"))
        return web.json_response(body())

    calls: list[int] = []
    async with serving(late, timeout_s=1) as backend:
        with pytest.raises(OutageError, match="did not answer"):
            await backend.complete(ASK)
        await asyncio.sleep(0.7)
        assert {(await backend.complete(ASK)).text for _ in range(5)} == {"Paris"}


async def test_connections_closed_at_any_moment() -> None:
    async def speak(writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(GOOD)
        if number % 3 == 0:
            writer.close()  # without a word, as servers do whose keep-alive time is over

    async with speaking(speak, attempts=10) as backend:
        for _ in range(3):
            done = await asyncio.gather(*(backend.complete(ASK) for _ in range(40)))
            assert all(answer.text == "Paris" for answer in done)


async def test_a_stream_that_breaks_off_is_a_lost_connection() -> None:
    """The connection ends without an error, because the reply has no length."""
    events = [{"choices": [{"delta": {"content": piece}}]} for piece in ("Par", "is")]
    events.append({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    lines = [b"data: %s\n\n" % orjson.dumps(event) for event in events]

    async def speak(writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(http(b"".join(lines[:number]), "Content-Type: text/event-stream", "Connection: close"))
        writer.close()

    async with speaking(speak, attempts=3) as backend:
        assert (await backend.complete(replace(ASK, on_text=lambda text: None))).text == "Paris"
    async with speaking(speak, attempts=2) as backend:
        with pytest.raises(OutageError, match="breaks off"):
            await backend.complete(ASK)


async def test_compressed_nothing_does_not_fill_the_memory() -> None:
    bomb = gzip.compress(bytes(64 << 20), 1)

    async def speak(writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(http(bomb, f"Content-Length: {len(bomb)}", "Content-Encoding: gzip") if number == 1 else GOOD)

    async with speaking(speak) as backend:
        with pytest.raises(CallError, match="larger than"):
            await backend.complete(ASK)
        assert (await backend.complete(ASK)).text == "Paris"


async def test_what_follows_a_reply_is_not_the_next_reply() -> None:
    """A server that says each reply a second time, while the connection rests."""

    async def speak(writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(http(body(str(number))))
        await asyncio.sleep(0.02)
        writer.write(http(body(str(number))))

    async with speaking(speak) as llm:
        for number in range(1, 4):
            assert (await llm.complete(ASK)).text == str(number)
            await asyncio.sleep(0.1)
