"""Against llama.cpp's own server with a real model, and against servers that misbehave."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port
from pydantic import BaseModel

from pyfast.errors import BackendError, CallError
from pyfast.llm import Backend, Request, dialogue, open_llm
from pyfast.llm.llamacpp import embedded_model, import_runtime
from pyfast.llm.openai import LARGEST_ANSWER

ASK = Request(dialogue("What is the capital of France?", "Be brief."), 16)
KEY = "sk-test-4711"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def body(text: Any = "Paris", **usage: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"object": "chat.completion", "choices": [choice], "usage": usage}


@asynccontextmanager
async def serving(handler: Handler, models: Any = None, **options: Any) -> AsyncIterator[Backend]:
    """A started backend on a server of this process that answers with `handler`."""

    async def models_handler(request: web.Request) -> web.Response:
        return web.json_response(models) if models is not None else web.Response(status=404)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", handler)
    app.router.add_get("/v1/models", models_handler)
    async with TestServer(app) as server:
        backend = open_llm(f"openai:m@http://127.0.0.1:{server.port}", **{"backoff_s": 0.001, **options})
        await backend.start()
        try:
            yield backend
        finally:
            await backend.close()


def replying(*replies: web.Response | dict[str, Any]) -> tuple[Handler, list[dict[str, Any]]]:
    """A handler that gives the replies in turn, the last one for ever, and what it was asked."""
    asked: list[dict[str, Any]] = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(await request.json())
        reply = replies[min(len(asked), len(replies)) - 1]
        if isinstance(reply, dict):
            return web.json_response(reply)
        return web.Response(body=reply.body, status=reply.status, headers=reply.headers)

    return handler, asked


# --- the real model behind llama.cpp's own server


@pytest.fixture(scope="module")
def llama_server(model_installed: None) -> Iterator[str]:
    xllamacpp = import_runtime()
    params = xllamacpp.CommonParams()
    params.model.path = str(embedded_model())
    params.n_ctx, params.n_parallel, params.verbosity, params.api_keys = 4096, 2, -1, [KEY]
    server = xllamacpp.Server(params)
    yield server.listening_address
    del server


async def test_a_real_server(llama_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Capital(BaseModel):
        capital: str
        country: str

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    backend = open_llm(f"openai:smollm2@{llama_server}/")
    await backend.start()
    assert backend.context_window == 2048
    request = Request(ASK.messages, 60, Capital.model_json_schema())
    first, *others = await asyncio.gather(*(backend.complete(request) for _ in range(4)))
    assert "paris" in Capital.model_validate_json(first.text).capital.lower()
    assert first.finish_reason == "stop" and first.prompt_tokens > 10 and first.completion_tokens > 3
    for other in others:
        Capital.model_validate_json(other.text)
    again = await backend.complete(request)
    assert again.cached_tokens > 0
    assert (await backend.complete(Request(ASK.messages, 2))).finish_reason == "length"
    with pytest.raises(CallError, match="exceeds the available context size"):
        await backend.complete(Request(dialogue("word " * 4000), 10))
    assert (await backend.complete(request)).text == again.text
    await backend.close()


async def test_a_wrong_key_on_a_real_server(llama_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    backend = open_llm(f"openai:smollm2@{llama_server}")
    await backend.start()
    with pytest.raises(BackendError, match="OPENAI_API_KEY"):
        await backend.complete(ASK)
    await backend.close()


# --- what is sent, and what is made of the answer


async def test_the_request_says_all() -> None:
    handler, asked = replying(body())
    schema = {"title": "Plan of [hops]", "type": "object", "properties": {"ü": {"type": "string"}}}
    closed = {**schema, "additionalProperties": False}
    async with serving(handler, extra={"top_k": 1}) as backend:
        await backend.complete(Request(dialogue("use\n“r”", "sys"), 7, schema, 0.5, 3))
        await backend.complete(Request(dialogue("u"), 7))
    assert asked[0] == {
        "model": "m",
        "top_k": 1,
        "messages": [{"role": "system", "content": "sys"}, {"role": "user", "content": "use\n“r”"}],
        "max_tokens": 7,
        "temperature": 0.5,
        "seed": 3,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "Plan_of_hops_", "strict": True, "schema": closed},
        },
    }
    assert asked[1]["messages"] == [{"role": "user", "content": "u"}] and "response_format" not in asked[1]


async def test_usage_and_context_window() -> None:
    handler, _ = replying(
        body(prompt_tokens=5, completion_tokens=2, prompt_tokens_details={"cached_tokens": 3}),
        body(prompt_tokens="5", completion_tokens=-2, prompt_tokens_details=[3]),
        {**body(), "usage": None},
    )
    models = {"data": [{"id": "other", "max_model_len": 1}, {"id": "m", "max_model_len": 32768}]}
    async with serving(handler, models) as backend:
        assert backend.context_window == 32768
        done = await backend.complete(ASK)
        assert (done.prompt_tokens, done.cached_tokens, done.completion_tokens) == (5, 3, 2)
        for _ in range(2):
            assert (await backend.complete(ASK)).prompt_tokens == 0


@pytest.mark.parametrize(
    ("models", "window"),
    [
        (None, 8192),
        ([], 8192),
        ({"data": [7]}, 8192),
        ({"data": [{"id": "x", "meta": {"n_ctx_train": 512}}]}, 512),
        ({"data": [{"id": "m", "meta": [], "max_model_len": "9"}]}, 8192),
    ],
)
async def test_context_window_of_unusual_servers(models: Any, window: int) -> None:
    async with serving(replying(body())[0], models) as backend:
        assert backend.context_window == window


# --- servers that misbehave


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b'{"choices": [{"mess',
        b"<html>busy</html>",
        b"\xff\xfe\x00",
        b"null",
        b"[]",
        b"7",
        b'"text"',
        b"{}",
        b'{"choices": []}',
        b'{"choices": {}}',
        b'{"choices": [null]}',
        b'{"choices": [{}]}',
        b'{"choices": [{"message": null}]}',
        b'{"choices": [{"message": {}}]}',
        b'{"choices": [{"message": {"content": null}}]}',
        b'{"choices": [{"message": {"content": 7}}]}',
        b'{"choices": [{"message": {"content": "\\ud800"}}]}',
        b'{"error": {"message": "overloaded"}}',
        b"[" * 100_000,
    ],
)
async def test_answers_that_are_none(reply: bytes) -> None:
    handler, asked = replying(web.Response(body=reply), body())
    async with serving(handler) as backend:
        with pytest.raises(CallError) as error:
            await backend.complete(ASK)
        assert "\n" not in str(error.value) and len(str(error.value)) < 500
        assert (await backend.complete(ASK)).text == "Paris"
    assert len(asked) == 2, "a wrong answer is not asked for again: it cost tokens"


async def test_strange_finish_reasons_are_not_hidden() -> None:
    reply = body()
    reply["choices"][0]["finish_reason"] = None
    async with serving(replying(reply)[0]) as backend:
        assert (await backend.complete(ASK)).finish_reason == "unknown"


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


@pytest.mark.parametrize("date", [False, True])
async def test_retry_after_is_honoured(date: bool) -> None:
    wait = formatdate(time.time() + 2, usegmt=True) if date else "1"
    handler, asked = replying(web.Response(status=429, headers={"Retry-After": wait}), body())
    async with serving(handler) as backend:
        started = time.monotonic()
        assert (await backend.complete(ASK)).text == "Paris"
        assert 0.5 < time.monotonic() - started < 10
    assert len(asked) == 2


@pytest.mark.parametrize("status", [408, 429, 500, 503])
async def test_a_busy_server_is_asked_a_few_times(status: int) -> None:
    busy = web.Response(
        status=status, body=b'{"error": {"message": "no\\nroom"}}', headers={"Retry-After": "soon"}
    )
    handler, asked = replying(busy)
    async with serving(handler, attempts=3) as backend:
        with pytest.raises(CallError, match=rf"answered {status}: no room"):
            await backend.complete(ASK)
    assert len(asked) == 3


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_a_refused_request_is_not_repeated(status: int) -> None:
    handler, asked = replying(web.Response(status=status, body=b'{"error": "prompt too long"}'))
    async with serving(handler) as backend:
        with pytest.raises(CallError, match=f"{status}: prompt too long"):
            await backend.complete(ASK)
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("status", "hint"), [(401, "OPENAI_API_KEY"), (403, "OPENAI_API_KEY"), (404, "model"), (302, "URL")]
)
async def test_a_server_that_will_never_answer_stops_the_run(status: int, hint: str) -> None:
    handler, asked = replying(web.Response(status=status, headers={"Location": "http://elsewhere/"}))
    async with serving(handler) as backend:
        with pytest.raises(BackendError, match=hint):
            await backend.complete(ASK)
    assert len(asked) == 1


async def test_the_key_is_sent_and_never_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    seen = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.headers["Authorization"])
        return web.Response(status=400 if len(seen) == 1 else 401, text=f"bad key {KEY}")

    async with serving(handler) as backend:
        for _ in range(2):
            with pytest.raises((CallError, BackendError)) as error:
                await backend.complete(ASK)
            assert KEY not in str(error.value)
        assert KEY not in backend.spec + backend.fingerprint() + caplog.text
    assert seen == [f"Bearer {KEY}"] * 2


async def test_a_connection_cut_each_time_fails_the_call() -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"choices"')
        assert request.transport is not None
        request.transport.abort()
        return response

    async with serving(cut, attempts=3) as backend:
        with pytest.raises(CallError, match="cut the connection"):
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
    with pytest.raises(BackendError, match=f"nothing answers at http://127.0.0.1:{port}/v1") as error:
        await backend.start()
    assert "\n" not in str(error.value)
    with pytest.raises(BackendError, match="not running"):
        await backend.complete(ASK)


async def test_the_server_dies_during_the_run() -> None:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", replying(body())[0])
    async with TestServer(app) as server:
        backend = open_llm(f"openai:m@http://127.0.0.1:{server.port}", attempts=3, backoff_s=0.001)
        await backend.start()
        await backend.complete(ASK)
    with pytest.raises(BackendError, match="nothing answers"):
        await backend.complete(ASK)
    await backend.close()


async def test_a_server_that_never_answers() -> None:
    async def hang(request: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    async with serving(hang, timeout_s=0.2) as backend:
        started = time.monotonic()
        with pytest.raises(CallError, match=r"no answer within 0\.2 s"):
            await backend.complete(ASK)
        assert time.monotonic() - started < 5


async def test_prompts_that_are_not_unicode_fail_alone() -> None:
    async with serving(replying(body())[0]) as backend:
        with pytest.raises(CallError):
            await backend.complete(Request(dialogue("broken \ud800"), 5))
        assert (await backend.complete(ASK)).text == "Paris"


# --- limits


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
        with pytest.raises(BackendError, match="closed"):
            async with asyncio.timeout(5):
                await call


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
