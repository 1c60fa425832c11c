"""Requests that are too large, too slow, too many, malformed or given up leave the others alone."""

import asyncio
import contextlib
import re
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from http_server import TITAN, Gate, serving, until
from word_vectors import WordVectors

import pyfast
from pyfast.errors import CallError, InputError, LLMUnavailableError, OutageError
from pyfast.knowledge import Session, open_session
from pyfast.llm import Completion, Request
from pyfast.server.http_server import listening
from pyfast.server.limits import read_keys
from pyfast.utils.options import ServerOptions


async def raw(port: int, sent: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    await writer.drain()
    return reader, writer


def head(length: str, path: str = "/v1/chat/completions") -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{length}\r\n\r\n".encode()
    )


async def test_one_that_is_given_up_is_cancelled_and_the_others_are_answered() -> None:
    gate = Gate()
    async with serving(None, gate) as served:
        asking = [asyncio.ensure_future(served.ask(stream=bool(number % 4 // 2))) for number in range(20)]
        staying = [asyncio.ensure_future(served.ask()) for _ in range(5)]
        await until(lambda: gate.working == 25)
        for task in asking:
            task.cancel()
        await until(lambda: gate.cancelled == 20)
        assert await served.metric("pyfast_questions_admitted") == 5
        gate.open.set()
        assert [status for status, _, _ in await asyncio.gather(*staying)] == [200] * 5


async def test_an_upload_that_is_given_up_is_no_fault_of_the_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(None, "instant", options=pyfast.ServerOptions(jobs=tmp_path)) as served:
        form = "Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 1000"
        sent = f"POST /v1/files HTTP/1.1\r\nHost: localhost\r\n{form}\r\n\r\n--x\r\n".encode()
        _, writer = await raw(served.port, sent)
        writer.close()
        async with asyncio.timeout(20):
            while not await served.metric('pyfast_requests_total{path="/v1/files",status="499"}'):
                await asyncio.sleep(0.02)
        assert (await served.ask())[0] == 200
    assert not caplog.records and not list((tmp_path / "files").iterdir())


async def test_a_slow_reader_of_a_stream_holds_up_nobody() -> None:
    """It reads nothing of an answer that is larger than all buffers; its place is free, and its stream is cut."""
    gate = Gate('Titan", "more": "' + "x" * (12 << 20))
    gate.open.set()
    async with serving(None, gate, concurrency=1, limits={"queue": 1, "seconds": 2}) as served:
        body = b'{"model": "direct", "stream": true, "messages": [{"role": "user", "content": "Who?"}]}'
        sock = socket.create_connection(("127.0.0.1", served.port))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(head(f"Content-Length: {len(body)}") + body)
        sock.setblocking(False)
        async with asyncio.timeout(30):
            while await served.metric('pyfast_questions_total{state="answered",system="direct"}') == 0:
                await asyncio.sleep(0.05)
        gate.text = "Titan"
        assert [(await served.ask())[0] for _ in range(3)] == [200] * 3
        size = 0
        with contextlib.suppress(ConnectionError):
            await asyncio.sleep(2.5)  # longer than the stream may take
            async with asyncio.timeout(30):
                while piece := await asyncio.get_running_loop().sock_recv(sock, 1 << 20):
                    size += len(piece)
        assert size < 12 << 20
        sock.close()


@pytest.mark.parametrize("length", ["Content-Length: 2000000", "Transfer-Encoding: chunked"])
async def test_a_large_body_is_refused_before_it_is_read(length: str) -> None:
    async with serving(None, "instant") as served:
        reader, writer = await raw(served.port, head(length))
        if "chunked" in length:
            with contextlib.suppress(ConnectionError):
                for _ in range(20):
                    writer.write(b"20000\r\n" + b"x" * 0x20000 + b"\r\n")
                    await writer.drain()
        answer = await asyncio.wait_for(reader.read(4096), 10)
        assert b" 413 " in answer and b"body_too_large" in answer
        assert (await served.ask())[0] == 200
        writer.close()


async def test_a_body_that_does_not_arrive_is_given_up() -> None:
    async with serving(None, "instant", limits={"body_seconds": 1}) as served:
        reader, writer = await raw(served.port, head("Content-Length: 100") + b'{"model"')
        assert (await served.ask())[0] == 200
        answer = await asyncio.wait_for(reader.read(4096), 10)
        assert b" 408 " in answer and b"body_too_slow" in answer
        writer.close()


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"\xff"', b"[" * 100_000, b'{"model": NaN}'])
async def test_a_malformed_body_is_refused(body: bytes) -> None:
    async with serving(None, "instant") as served:
        headers = {"Content-Type": "application/json"}
        url = served.url + "/v1/chat/completions"
        async with served.client.post(url, data=body, headers=headers) as response:
            assert response.status == 400 and (await response.json())["error"]["type"] == "invalid_request_error"
        assert (await served.ask())[0] == 200


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


@pytest.mark.parametrize(
    ("path", "fields", "named", "hint"),
    [
        ("chat/completions", {"filters": "source=a/*"}, "filters", ""),
        (
            "chat/completions",
            {"settings": {"hops": 1}},
            "settings.hops",
            "requests to this server cannot change hops",
        ),
        ("chat/completions", {"message": []}, "message", "did you mean messages?"),
        ("chat/completions", {"system": "n2n"}, "system", "`model` names the system"),
        ("chat/completions", {"stop": ["x"]}, "stop", "not supported"),
        ("chat/completions", {"logprobs": True}, "logprobs", "not supported"),
        (
            "chat/completions",
            {"messages": [{"role": "user", "content": "Who?", "filter": 1}]},
            "messages.0.filter",
            "",
        ),
        ("retrieve", {"query": "moons", "filters": "source=a/*"}, "filters", ""),
        ("rerank", {"query": "moons", "documents": ["a"], "top_k": 1}, "top_k", ""),
        (
            "rerank",
            {"query": "moons", "documents": [{"text": "a", "title": "b"}]},
            "documents.0.title",
            "",
        ),
        ("chat/completions", {"max_token": 50}, "max_token", "did you mean max_tokens?"),
        ("rerank", {"query": "moons", "documents": ["a"], "modell": "x"}, "modell", "did you mean model?"),
        (
            "rerank",
            {"query": "moons", "documents": ["a", {"title": "b"}]},
            "documents.1.title",
            "documents.1: title: there is no such field; text is missing",
        ),
        ("rerank", {"query": "moons", "documents": ["a", {}]}, "documents.1.text", "Field required"),
        ("rerank", {"query": "moons", "documents": [{"text": 5}]}, "documents.0.text", "valid string"),
        (
            "chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "Who?"}, IMAGE]}]},
            "messages.0.content.1.type",
            "messages.0.content.1: type: only parts of type text are accepted",
        ),
        (
            "chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
            "messages.0.content.0.text",
            "Field required",
        ),
        (
            "chat/completions",
            {"messages": [{"role": "user", "content": [5]}]},
            "messages.0.content.0",
            "an object",
        ),
    ],
)
async def test_a_field_that_could_change_the_answer_is_refused(
    path: str, fields: dict[str, Any], named: str, hint: str
) -> None:
    known = {"model": "direct", "messages": [{"role": "user", "content": "Who?"}]} if "chat" in path else {}
    async with serving(None, "instant") as served:
        status, said, _ = await served.post(f"/v1/{path}", {**known, **fields})
        assert status == 400 and hint in said["error"]["message"], said
        assert named.rpartition(".")[2] in said["error"]["message"] and said["error"]["param"] == named, said
        assert not re.search("Text[DP]|list", said["error"]["message"])


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "retrieve?filter=source%3Da", 400),
        ("POST", "rerank?top_n=", 400),
        ("POST", "chat/completions?model=rag", 400),
        ("GET", "models?filter", 400),
        ("GET", "files?order=asc", 400),
        ("GET", "models?api-version=2025-01-01", 200),
        ("GET", "models", 200),
    ],
)
async def test_a_query_parameter_that_is_unknown_is_refused(method: str, path: str, status: int) -> None:
    async with (
        serving(None, "instant") as served,
        served.client.request(method, f"{served.url}/v1/{path}", json={"query": "moons"}) as reply,
    ):
        said = await reply.json()
        assert reply.status == status
        if status == 400:
            assert (
                said["error"]["param"] == re.split("[?=]", path)[1]
                and "query parameter" in said["error"]["message"]
            )


async def test_fields_that_clients_send_by_themselves_change_nothing() -> None:
    sent = {
        "temperature": 0,
        "max_tokens": 5,
        "seed": 1,
        "user": "u",
        "stop": None,
        "metadata": {"a": "b"},
        "store": False,
    }
    neutral = {"logprobs": False, "tool_choice": "auto", "logit_bias": {}, "tools": [], "n": 1, "filter": None}
    async with serving(None, "instant") as served:
        body = {"model": "direct", "messages": [{"role": "user", "content": "Who?", "name": "ada"}]}
        assert (await served.post("/v1/chat/completions", {**body, **sent, **neutral}))[0] == 200


async def test_too_many_are_sent_away_and_told_when_to_come_back() -> None:
    gate = Gate()
    async with serving(None, gate, concurrency=2, limits={"queue": 1}) as served:
        asking = [asyncio.ensure_future(served.ask()) for _ in range(3)]
        await until(lambda: gate.working == 2)
        await until(lambda: served.app.state.service.queue.admitted == 3)
        assert await served.metric("pyfast_questions_waiting") == 1
        for stream in (False, True):
            status, said, headers = await served.ask(stream=stream)
            assert (status, said["error"]["code"]) == (429, "queue_full") and int(headers["Retry-After"]) >= 1
        gate.open.set()
        assert [status for status, _, _ in await asyncio.gather(*asking)] == [200] * 3


async def test_one_that_takes_too_long_is_given_up() -> None:
    gate = Gate()
    async with serving(None, gate, limits={"seconds": 1}) as served:
        status, said, _ = await served.ask()
        assert (status, said["error"]["code"]) == (504, "timeout")
        await until(lambda: gate.cancelled == 1)
        async with served.client.post(
            served.url + "/v1/chat/completions", json={"model": "direct", "messages": TITAN, "stream": True}
        ) as response:
            assert b'"code":"timeout"' in await response.read()


async def test_a_time_limit_that_ends_while_a_graph_is_built_says_so(
    small: pyfast.Index, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "pyfast")
    done = threading.Event()

    def slow(*given: Any) -> Session:
        done.wait(30)
        return open_session(*given)

    monkeypatch.setattr("pyfast.knowledge.session.Embedder", WordVectors)
    monkeypatch.setattr("pyfast.systems.system.open_session", slow)
    async with serving(small, "instant", limits={"seconds": 1}) as served:
        status, said, _ = await served.ask("subqrag")
        assert (status, said["error"]["code"]) == (504, "timeout")
        told = (
            "no answer within the server's time limit: subqrag is not ready; its knowledge graph or models are"
            " still being prepared; ask again later"
        )
        assert said["error"]["message"] == told and f"(504 timeout): {told}" in caplog.text
        done.set()
        await until(lambda: "the graph of this run" in caplog.text)
        assert (await served.ask("subqrag"))[0] == 200


async def test_an_llm_that_is_gone_is_told() -> None:
    class Gone:
        fingerprint = "gone-1"

        async def complete(self, request: Request) -> Completion:
            raise LLMUnavailableError("nothing answers")

    async with serving(None, Gone()) as served:
        status, said, headers = await served.ask()
        assert (status, said["error"]["code"]) == (503, "llm_unavailable") and int(headers["Retry-After"]) >= 1
        assert served.app.state.service.status == "waiting"


@pytest.mark.parametrize(
    ("header", "status", "told"),
    [
        ({}, 401, "send an API key"),
        ({"Authorization": "Bearer "}, 401, "send an API key"),
        ({"Authorization": "Bearer wrong"}, 401, "this API key is not valid"),
        ({"Authorization": "Basic first"}, 401, "send an API key"),
        ({"Authorization": "Bearer \u00e9"}, 401, "this API key is not valid"),
        ({"Authorization": "Bearer first"}, 200, ""),
        ({"Authorization": "bearer second"}, 200, ""),
    ],
)
async def test_keys(header: dict[str, str], status: int, told: str) -> None:
    async with serving(None, "instant", keys=["first", "second"]) as served:
        for path, expected in (("/v1/models", status), ("/metrics", status), ("/health", 200), ("/ready", 200)):
            async with served.client.get(served.url + path, headers=header) as response:
                assert response.status == expected, path
                assert told in await response.text() or expected == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:8000", 200), ("[::1]:8000", 200), ("evil.example", 400), ("localhost.evil", 400)],
)
async def test_a_web_page_cannot_reach_a_server_under_its_own_name(host: str, status: int) -> None:
    async with (
        serving(None, "instant", hosts={"localhost", "127.0.0.1", "[::1]"}) as served,
        served.client.get(served.url + "/v1/models", headers={"Host": host}) as response,
    ):
        assert response.status == status


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", ""])
def test_it_listens_elsewhere_with_keys_alone(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYFAST_API_KEYS", raising=False)
    with pytest.raises(InputError, match=r"set PYFAST_API_KEYS or name a file of keys \(--keys\)"):
        pyfast.serve(None, "instant", host=host, port=0)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"limits": {"queue": -1}}, "limit queue: expected"),
        ({"limits": {"seconds": "60"}}, "limit seconds: expected"),
        ({"limits": {"speed": 1}}, "unknown limit speed"),
        ({"systems": ["n2n"]}, "n2n needs an index: pass one to the server"),
        ({"systems": {"direct": {"nonsense": 1}}}, "no setting 'nonsense'"),
        ({"systems": []}, "no system was given"),
        ({"index": {}}, "no index was given"),
        ({"index": {"a b": "IDX"}}, "no index|not a pyfast index|IDX"),
        ({"host": "192.0.2.1"}, "set PYFAST_API_KEYS"),
    ],
)
def test_what_does_not_fit_is_refused_before_it_listens(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(pyfast.errors.PyfastError, match=fault):
        pyfast.serve(**{"llm": "instant", "port": 0, **options})


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o640, False), (0o644, True)])
def test_a_file_of_keys_that_everybody_can_read(
    mode: int, warned: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "keys.toml"
    path.write_text('[a]\nkey = "SECRET"\n')
    path.chmod(mode)
    read_keys(path)
    assert ("chmod 600" in caplog.text) is warned and "SECRET" not in caplog.text


async def test_limits_of_a_key(tmp_path: Path) -> None:
    """Each key has its own; the clock of the minute and of the day says when to come again."""
    (tmp_path / "keys.toml").write_text(
        '[few]\nkey = "A"\nrequests_per_minute = 2\n'
        '[slow]\nkey = "B"\nrequests_at_once = 1\n'
        '[poor]\nkey = "C"\ntokens_per_day = 150\n[free]\nkey = "D"\n'
    )
    gate, options = Gate(), ServerOptions(keys=tmp_path / "keys.toml")
    gate.open.set()
    async with serving(None, gate, options=options) as served:

        async def ask(key: str) -> tuple[int, int, str]:
            body = {"model": "direct", "messages": TITAN}
            said = {"Authorization": f"Bearer {key}"}
            status, reply, headers = await served.post("/v1/chat/completions", body, headers=said)
            fault = reply.get("error", {})
            assert status == 200 or (fault["code"], fault["type"]) == ("rate_limit_exceeded", "rate_limit_error")
            return status, int(headers.get("Retry-After", 0)), fault.get("message", "")

        assert [(await ask("A"))[0] for _ in range(3)] == [200, 200, 429]
        _, pause, fault = await ask("A")
        assert 50 <= pause <= 60 and "requests_per_minute = 2" in fault
        assert [(await ask("C"))[0] for _ in range(3)] == [200, 200, 429]  # 110 tokens each
        async with served.client.get(served.url + "/metrics", headers={"Authorization": "Bearer C"}) as reply:
            assert reply.status == 200
        _, pause, _ = await ask("C")
        assert abs(pause - (86_400 - time.time() % 86_400)) < 20
        gate.open.clear()
        first = asyncio.ensure_future(ask("B"))
        await until(lambda: gate.working == 1)
        assert (await ask("B"))[:2] == (429, 1)
        gate.open.set()
        assert (await first)[0] == 200 and (await ask("B"))[0] == 200 and (await ask("D"))[0] == 200
        async with served.client.get(served.url + "/metrics", headers={"Authorization": "Bearer D"}) as reply:
            told = await reply.text()
        for line in (
            'requests_total{key="few",state="accepted"} 2.0',
            'requests_total{key="few",state="refused"} 2.0',
            'tokens_total{key="poor"} 220.0',
        ):
            assert f"pyfast_key_{line}" in told
    for wrong in ("requests_per_minute = 0", "tokens_per_day = 1.5", "requests_at_once = true", "tokens = 4"):
        (tmp_path / "wrong.toml").write_text(f'[a]\nkey = "A"\n{wrong}\n')
        with pytest.raises(InputError, match="unknown field tokens" if wrong == "tokens = 4" else "whole number"):
            read_keys(tmp_path / "wrong.toml")


async def test_it_starts_while_the_llm_is_down(tmp_path: Path) -> None:
    """The port answers nothing at first; then a server of an LLM listens there."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with serving(None, f"openai:m@http://127.0.0.1:{port}") as served:
        status, said, headers = await served.ask()
        assert (status, said["error"]["code"]) == (503, "llm_unavailable") and int(headers["Retry-After"]) >= 1
        assert "127.0.0.1" not in said["error"]["message"]
        for path, code, told in (("/health", 200, "ok"), ("/ready", 503, "waiting")):
            async with served.client.get(served.url + path) as reply:
                assert (reply.status, await reply.json()) == (code, {"status": told})

        async def completions(request: web.Request) -> web.Response:
            choice = {"message": {"content": '{"answer": "Huygens"}'}, "finish_reason": "stop"}
            return web.json_response({"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": 2}})

        llm = web.Application()
        llm.router.add_post("/v1/chat/completions", completions)
        runner = web.AppRunner(llm)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", port).start()
            await until(lambda: served.app.state.service.is_ready)
            status, said, _ = await served.ask()
            assert status == 200 and said["choices"][0]["message"]["content"] == "Huygens"
            async with served.client.get(served.url + "/ready") as reply:
                assert (reply.status, await reply.json()) == (200, {"status": "ready"})
        finally:
            await runner.cleanup()


def test_an_answer_does_not_wait_for_the_network() -> None:
    """Headers and body are sent one after the other. Without this option, the system holds the body back."""
    with listening("127.0.0.1", 0, 1.0) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("outage", [0.0, 1.0])
async def test_it_is_not_ready_in_an_outage(outage: float, caplog: pytest.LogCaptureFixture) -> None:
    """The outage begins after a first answer. No question is asked after it, as behind a load balancer."""
    works, asked = True, 0

    async def completions(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        if not works:
            return web.Response(status=500)
        choice = {"message": {"content": '{"answer": "Huygens"}'}, "finish_reason": "stop"}
        return web.json_response({"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": 2}})

    llm = web.Application()
    llm.router.add_post("/v1/chat/completions", completions)
    runner = web.AppRunner(llm)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    options = {"llm_options": {"attempts": 1}, "options": ServerOptions(outage=outage)}
    try:
        async with serving(None, f"openai:m@{url}", **options) as served:

            async def ready() -> tuple[int, str]:
                async with served.client.get(served.url + "/ready") as reply:
                    return reply.status, (await reply.json())["status"]

            async def becomes(wanted: tuple[int, str]) -> None:
                async with asyncio.timeout(20):
                    while await ready() != wanted:
                        await asyncio.sleep(0.05)

            assert (await served.ask())[0] == 200 and await ready() == (200, "ready")
            works = False
            asking = asyncio.ensure_future(served.ask())
            await becomes((503, "waiting"))
            if not outage:
                status, said, _ = await asking
                assert (status, said["error"]["code"]) == (503, "llm_unavailable")
                assert url not in said["error"]["message"] and url in caplog.text
                before = asked
                for _ in range(20):  # However often somebody asks: few test calls.
                    assert await ready() == (503, "waiting")
                assert asked <= before + 1
            works = True
            await becomes((200, "ready"))
            if outage:
                assert (await asking)[0] == 200
    finally:
        await runner.cleanup()


async def test_an_llm_that_comes_back_after_the_patience(caplog: pytest.LogCaptureFixture) -> None:
    """The engine has given up, and no question is asked."""

    class Falling(Gate):
        is_up = False

        async def complete(self, request: Request) -> Completion:
            if not self.is_up:
                raise OutageError("down")
            return await super().complete(request)

    llm = Falling()
    llm.open.set()
    async with serving(None, llm, options=ServerOptions(outage=0.01)) as served:
        assert (await served.ask())[0] == 503
        service = served.app.state.service
        assert service.status == "waiting"
        await asyncio.sleep(1)
        assert service.status == "waiting"
        llm.is_up = True
        await until(lambda: service.status == "ready")
        assert (await served.ask())[0] == 200


@pytest.mark.parametrize("said", ["http://10.0.0.7:8001/v1 answered 400", "no connection to 10.0.0.7:8001 [None]"])
async def test_a_failed_call_streams_no_address(said: str) -> None:
    class Refusing(Gate):
        async def complete(self, request: Request) -> Completion:
            raise CallError(said)

    async with serving(None, Refusing()) as served:
        body = {"model": "direct", "messages": [{"role": "user", "content": "?"}], "stream": True}
        async with served.client.post(f"{served.url}/v1/chat/completions", json=body) as response:
            streamed = await response.text()
    assert "the LLM call failed" in streamed and "failed_call" in streamed
    assert "10.0.0.7" not in streamed


async def test_a_failed_call_tells_no_address(caplog: pytest.LogCaptureFixture) -> None:
    class Refusing(Gate):
        async def complete(self, request: Request) -> Completion:
            raise CallError("http://10.0.0.7:8001/v1 answered 400: the prompt is too long")

    async with serving(None, Refusing()) as served:
        status, said, _ = await served.ask()
        assert (status, said["error"]["code"]) == (422, "failed_call")
        assert said["error"]["message"].endswith("the LLM's server answered 400: the prompt is too long")
        assert "10.0.0.7" in caplog.text


async def test_a_key_whose_filter_matches_no_document_is_named_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sources = {name: [{"id": f"{name}/titan", "text": "Titan is a moon."}] for name in ("acme", "globex")}
    indexes = {name: pyfast.build_index(given, tmp_path / name) for name, given in sources.items()}
    filters = {"typo": "source=acmee/*", "right": "source=globex/*", "other": "source=nowhere"}
    tables = (f'[{name}]\nkey = "KEY-{name}"\nfilter = "{value}"\n' for name, value in filters.items())
    (keys := tmp_path / "keys.toml").write_text("".join(tables))
    keys.chmod(0o600)
    async with serving(indexes, "instant", systems=["rag"], options=pyfast.ServerOptions(keys=keys)):
        await until(lambda: "the key other" in caplog.text)
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told == [f"the filter of the key {name} matches no document" for name in ("typo", "other")]
