"""Against llama.cpp's own server with a real model, and against servers that give strange answers."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from pydantic import BaseModel
from servers import ASK, body, replying, serving

import pyfast
from pyfast.errors import AnswerError, CallError, InputError, LLMUnavailableError, OutageError, RefusalError
from pyfast.llm import Request, dialogue, open_llm
from pyfast.llm.llamacpp import embedded_model, import_runtime

KEY = "sk-test-4711"


# --- the real model behind llama.cpp's own server


@pytest.fixture(scope="module")
def llama_server(model_installed: None) -> Iterator[str]:
    xllamacpp = import_runtime()
    params = xllamacpp.CommonParams()
    params.model.path = str(embedded_model())
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1  # see `embedded` in conftest.py
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
    first, *others = await asyncio.gather(*(backend.complete(request) for _ in range(3)))
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
    with pytest.raises(LLMUnavailableError, match="OPENAI_API_KEY"):
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


@pytest.mark.parametrize("status", [500, 503, 429, 404, 501])
async def test_a_context_window_is_not_assumed_while_the_server_fails(status: int) -> None:
    """A server without the page has the default window. One that fails has not said that it has none."""
    asked, is_error = 0, status not in (404, 501)

    async def models(_: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(status=status)

    app = web.Application()
    app.router.add_get("/v1/models", models)
    async with TestServer(app) as server:
        spec, options = f"openai:m@http://127.0.0.1:{server.port}", {"attempts": 3, "backoff_s": 0.001}
        backend = open_llm(spec, **options)
        if is_error:
            with pytest.raises(OutageError, match=f"answered {status}.*set the option context_window"):
                await backend.start()
        else:
            await backend.start()
        assert asked == (3 if is_error else 1)
        await backend.close()
        known = open_llm(spec, **options, context_window=1000)
        await known.start()
        assert known.context_window == 1000
        await known.close()


async def test_usage_and_context_window() -> None:
    handler, _ = replying(
        body(prompt_tokens=5, completion_tokens=2, prompt_tokens_details={"cached_tokens": 3}),
        body(prompt_tokens="5", completion_tokens=-2, prompt_tokens_details=[3]),
        {**body(), "usage": None},
        body(prompt_tokens=True, completion_tokens=0),
    )
    models = {"data": [{"id": "other", "max_model_len": 1}, {"id": "m", "max_model_len": 32768}]}
    async with serving(handler, models) as backend:
        assert backend.context_window == 32768
        done = await backend.complete(ASK)
        assert (done.prompt_tokens, done.cached_tokens, done.completion_tokens) == (5, 3, 2)
        for _ in range(3):
            done = await backend.complete(ASK)
            assert (done.prompt_tokens, done.cached_tokens, done.completion_tokens) == (0, 0, 0)


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


@pytest.mark.guarantee("G5")
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
        b'{"choices": null}',
        b'{"choices": []}',
        b'{"choices": {}}',
        b'{"choices": [null]}',
        b'{"choices": [{}]}',
        b'{"choices": [{"message": null}]}',
        b'{"choices": [{"message": "Paris"}]}',
        b'{"choices": "Paris"}',
        b'{"error": {"message": "overloaded"}}',
        b'{"error": {"message": "overloaded", "code": 503}, "choices": null}',
        b'{"object": "error", "message": "overloaded", "code": 502}',
        b'{"choices": [{"error": {"code": "429"}, "message": {"content": "Par"}, "finish_reason": "error"}]}',
        b'{"choices": [{"message": {"content": "Par"}, "finish_reason": "error"}]}',
        b"data: not JSON",
        b'data: {"error": {"message": "overloaded"}}\n\ndata: [DONE]\n',
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
)
async def test_a_reply_without_a_completion_is_a_fault_of_the_server(reply: bytes) -> None:
    handler, asked = replying(web.Response(body=reply), body())
    async with serving(handler) as backend:
        assert (await backend.complete(ASK)).text == "Paris"
    assert len(asked) == 2
    handler, asked = replying(web.Response(body=reply))
    async with serving(handler, attempts=2) as backend:
        with pytest.raises(OutageError) as error:
            await backend.complete(ASK)
    assert "\n" not in str(error.value) and len(str(error.value)) < 500 and len(asked) == 2


@pytest.mark.parametrize(
    ("code", "hint"), [(401, "OPENAI_API_KEY"), ("404", "does not know this model or this path.*no such m")]
)
async def test_an_error_in_a_reply_counts_as_its_status(code: Any, hint: str) -> None:
    handler, asked = replying({"error": {"message": "no such m", "code": code}})
    async with serving(handler) as backend:
        with pytest.raises(RefusalError, match=f"answered 40[14]: .*{hint}"):
            await backend.complete(ASK)
    assert len(asked) == 1


EVENTS = b"""event: completion
data: {"choices": [{"delta": {"role": "assistant", "content": "Pa"}, "finish_reason": null}]}

data: {"choices": [{"delta": {"content": "ris"}, "finish_reason": "stop"}]}

data: {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}

data: [DONE]
"""
PARTS = [
    {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]},
    {"type": "text", "text": "Pa"},
    {"type": "output_text", "text": "ris"},
]


@pytest.mark.parametrize(
    "reply",
    [
        EVENTS,
        EVENTS.replace(b"\n", b"\r\n"),
        b"data: " + orjson.dumps(body()) + b"\n\ndata: [DONE]\n",
        b": PROCESSING\n\n: PROCESSING\n\n" + orjson.dumps(body()),
        b"\n\n" + orjson.dumps(body()),
        b"\xef\xbb\xbf" + orjson.dumps(body()),
        orjson.dumps(body()) + b"\x00\n",
        orjson.dumps(body(PARTS)),
        orjson.dumps(body(["Par", "is"])),
        orjson.dumps(body()).replace(b'"chat.completion"', b'"chat\xff.completion"'),
        b'{"choices": [{"text": "Paris", "finish_reason": "stop"}]}',
        b'{"choices": [{"message": {"content": null, "tool_calls": [{"function": {"arguments": "Paris"}}]}}]}',
        b'{"choices": [{"message": {"content": "", "function_call": {"arguments": "Paris"}}}]}',
    ],
    ids=lambda reply: repr(reply[:40]),
)
async def test_a_completion_in_another_form_is_read(reply: bytes) -> None:
    handler, asked = replying(web.Response(body=reply))
    async with serving(handler) as backend:
        assert (await backend.complete(ASK)).text == "Paris"
    assert len(asked) == 1


async def test_a_call_of_a_tool_in_a_stream_is_put_together() -> None:
    pieces: list[dict[str, Any]] = [{"name": "answer", "arguments": ""}, {"arguments": '{"answer": '}]
    pieces += [{"arguments": '"Paris"}'}]
    calls = [{"choices": [{"delta": {"tool_calls": [{"index": 0, "function": it}]}}]} for it in pieces]
    stream = b"".join(b"data: %s\n\n" % orjson.dumps(event) for event in calls)
    async with serving(replying(web.Response(body=stream))[0]) as backend:
        assert (await backend.complete(ASK)).text == '{"answer": "Paris"}'


@pytest.mark.parametrize(
    ("content", "text"),
    [(b"null", ""), (b'{"answer": "Paris"}', '{"answer":"Paris"}'), (b'"Pa\\ud800ris"', "Pa?ris"), (b"7", None)],
)
async def test_a_content_that_is_no_text(content: bytes, text: str | None) -> None:
    reply = b'{"choices": [{"message": {"content": %s}, "finish_reason": "stop"}]}' % content
    async with serving(replying(web.Response(body=reply))[0]) as backend:
        if text is None:
            with pytest.raises(CallError, match="contains no text"):
                await backend.complete(ASK)
        else:
            assert (await backend.complete(ASK)).text == text


@pytest.mark.parametrize("failed", ['{"answer": ', ""])
async def test_a_generation_that_the_server_refuses_is_a_reply(failed: str) -> None:
    error = {"message": "Failed to generate JSON.", "code": "json_validate_failed", "failed_generation": failed}
    handler, asked = replying(web.Response(status=400, body=orjson.dumps({"error": error})), body())
    async with serving(handler) as backend:
        assert (await backend.complete(ASK)).text == failed
        assert (await backend.complete(ASK)).text == "Paris"
    assert asked[0] == asked[1]


@pytest.mark.guarantee("G5")
@pytest.mark.parametrize("reason", [None, 7, ["stop"], {}])
async def test_strange_finish_reasons_are_not_hidden(reason: Any) -> None:
    reply = body()
    reply["choices"][0]["finish_reason"] = reason
    async with serving(replying(reply)[0]) as backend:
        assert (await backend.complete(ASK)).finish_reason == "unknown"


@pytest.mark.parametrize("reason", ["length", "content_filter", "tool_calls"])
async def test_an_answer_without_text_that_says_why(reason: str) -> None:
    reply = body(None, completion_tokens=16)
    reply["choices"][0] |= {"finish_reason": reason}
    reply["choices"][0]["message"] |= {"tool_calls": [{"id": "1"}], "reasoning_content": "Hm"}
    async with serving(replying(reply)[0]) as backend:
        done = await backend.complete(ASK)
    assert (done.text, done.finish_reason, done.completion_tokens) == ("", reason, 16)


async def test_a_refusal_is_quoted() -> None:
    reply = body(None)
    reply["choices"][0]["message"]["refusal"] = "I must\nnot " + "x" * 10_000
    async with serving(replying(reply, body())[0]) as backend:
        with pytest.raises(AnswerError, match="refused: I must not x") as error:
            await backend.complete(ASK)
        assert len(str(error.value)) < 400
        assert (await backend.complete(ASK)).text == "Paris"


@pytest.mark.parametrize("status", [408, 429, 500, 503])
async def test_a_busy_server_is_asked_a_few_times(status: int) -> None:
    busy = web.Response(
        status=status, body=b'{"error": {"message": "no\\nroom"}}', headers={"Retry-After": "soon"}
    )
    handler, asked = replying(busy)
    async with serving(handler, attempts=3) as backend:
        with pytest.raises(OutageError, match=rf"answered {status}: no room"):
            await backend.complete(ASK)
    assert len(asked) == 3


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_a_refused_request_is_not_repeated(status: int) -> None:
    refused = web.Response(status=status, body=b'{"error": "prompt too long"}')
    handler, asked = replying(body(), refused)
    async with serving(handler) as backend:
        await backend.complete(ASK)
        with pytest.raises(CallError, match=f"{status}: prompt too long"):
            await backend.complete(ASK)
    assert len(asked) == 2


async def test_a_first_request_that_is_refused_may_mean_all() -> None:
    wrong = b'[{"error": {"code": 400, "message": "API key not valid", "status": "INVALID_ARGUMENT"}}]'
    handler, asked = replying(web.Response(status=400, body=wrong))
    async with serving(handler) as backend:
        with pytest.raises(RefusalError, match=r"400: API key not valid$"):
            await backend.complete(ASK)
    assert len(asked) == 1


def test_a_server_that_refuses_every_call_with_400_ends_the_run(tmp_path: Path) -> None:
    refused = web.json_response({"error": {"message": "Invalid model name passed"}}, status=400)

    async def run(handler: Any) -> None:
        async with serving(handler) as backend:
            questions = [f"Who is number {k}?" for k in range(40)]
            await asyncio.to_thread(
                pyfast.answer, questions, llm=backend.spec, system="direct", run=tmp_path / "run"
            )

    handler, asked = replying(refused)
    with pytest.raises(LLMUnavailableError, match="Invalid model name"):
        asyncio.run(run(handler))
    assert len(asked) < 90 and not pyfast.Run(tmp_path / "run").records


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        (401, "OPENAI_API_KEY"),
        (402, "credit"),
        (403, "OPENAI_API_KEY"),
        (404, "model"),
        (302, "URL"),
        (429, "credit"),
    ],
)
async def test_a_server_that_will_never_answer_stops_the_run(status: int, hint: str) -> None:
    spent = b'{"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}'
    handler, asked = replying(web.Response(status=status, body=spent, headers={"Location": "http://elsewhere/"}))
    async with serving(handler) as backend:
        with pytest.raises(LLMUnavailableError, match=hint):
            await backend.complete(ASK)
    assert len(asked) == 1


async def test_a_quota_that_is_named_by_the_type_of_the_error() -> None:
    spent = b'{"error": {"message": "no", "type": "insufficient_quota", "code": null}}'
    async with serving(replying(web.Response(status=429, body=spent))[0]) as backend:
        with pytest.raises(LLMUnavailableError, match="credit") as error:
            await backend.complete(ASK)
    assert not isinstance(error.value, RefusalError | OutageError)


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
            with pytest.raises((CallError, LLMUnavailableError)) as error:
                await backend.complete(ASK)
            assert KEY not in str(error.value)
        assert KEY not in backend.spec + backend.fingerprint + caplog.text
    assert seen == [f"Bearer {KEY}"] * 2


@pytest.mark.guarantee("G4")
async def test_prompts_that_are_not_unicode_fail_alone() -> None:
    async with serving(replying(body())[0]) as backend:
        with pytest.raises(CallError):
            await backend.complete(Request(dialogue("broken \ud800"), 5))
        assert (await backend.complete(ASK)).text == "Paris"


async def test_a_query_and_headers_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_KEY", "azure-secret-4711")
    seen: list[web.Request] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request)
        return web.json_response({"error": f"no azure-secret-4711 {request.headers['api-key']}"}, status=400)

    options = {"query": {"api-version": "2024-10-21"}, "headers": {"api-key": "$AZURE_KEY", "X-Team": "moons"}}
    async with serving(handler, **options) as backend:
        with pytest.raises(RefusalError, match=r"400: no \*\*\* \*\*\*"):
            await backend.complete(ASK)
        assert backend.fingerprint == "openai:m" and "azure" not in backend.spec
    (request,) = seen
    assert dict(request.query) == {"api-version": "2024-10-21"}
    assert (request.headers["api-key"], request.headers["X-Team"]) == ("azure-secret-4711", "moons")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"headers": {"api-key": "abc"}}, "'api-key' is a secret, and run.toml would record it; give $API_KEY as"),
        ({"headers": {"api-key": "$NOT_SET"}}, "environment variable NOT_SET for 'api-key' is not set"),
        ({"headers": {"X": "a\r\nHost: b"}}, "HTTP header"),
        ({"headers": {"X: y": "a"}}, "HTTP header"),
        ({"query": {"a": 7}}, "HTTP header"),
    ],
)
def test_headers_that_cannot_be_sent(options: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as error:
        open_llm("openai:m@http://127.0.0.1:1", **options)
    assert told in str(error.value)


@pytest.mark.parametrize(("status", "refused"), [(401, True), (403, True), (401, False), (403, False)])
async def test_a_refused_key_is_said_at_the_start(
    status: int, refused: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Not if the key may only not see the list of models: then the model answers a test call."""
    asked = 0

    async def chat(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return (
            web.json_response({"error": {"message": "no"}}, status=status)
            if refused
            else web.json_response(body())
        )

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"error": {"message": "no"}}, status=status)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_get("/v1/models", models)
    async with TestServer(app) as server:
        spec = f"openai:m@http://127.0.0.1:{server.port}"
        async with pyfast.Engine(llm=spec) as engine:
            assert engine.llm_is_out() == refused == ("check OPENAI_API_KEY" in caplog.text)
            assert asked == 1
        if refused:
            with pytest.raises(LLMUnavailableError, match="check OPENAI_API_KEY"):
                await asyncio.to_thread(pyfast.answer, ["Who?"], llm=spec, system="direct")


@pytest.mark.parametrize(
    ("names", "warned"),
    [
        (["n", "o"], True),
        (["n", "m"], False),
        (["n"], False),
        (["n", "m:latest"], False),
        (["n", "models/m"], False),
    ],
)
async def test_a_model_that_the_server_does_not_list(
    names: list[str], warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    listed = {"data": [{"id": name} for name in names]}
    async with serving(replying(body())[0], listed):
        assert ("does not list the model 'm'; it lists n, o" in caplog.text) == warned
