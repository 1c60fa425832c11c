"""`/v1/chat/completions`, as the official client and curl speak it."""

import asyncio
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import openai
import pytest
from http_server import TITAN, Gate, serving

import pyfast
from pyfast.llm import Completion, Request
from pyfast.server import create_app
from pyfast.systems.prompts import INSUFFICIENT

QUESTION = "Who discovered Titan?"


def client(url: str, **options: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=url + "/v1", **{"api_key": "none", "max_retries": 0, **options})


async def test_the_official_client_gets_the_answer_and_its_evidence(small: pyfast.Index) -> None:
    (record,) = pyfast.answer([QUESTION], index=small, llm="instant", system="n2n").records
    async with serving({"space": small}, "instant") as served, client(served.url) as ask:
        said = await ask.chat.completions.create(model="n2n", messages=TITAN)  # type: ignore[arg-type]
        (choice,) = said.choices
        assert (choice.message.content, choice.finish_reason) == (record.answer, "stop")
        assert said.usage is not None and said.usage.prompt_tokens == record.usage.prompt_tokens > 0
        assert said.usage.total_tokens == record.usage.prompt_tokens + record.usage.completion_tokens
        cited = [note.url_citation for note in choice.message.annotations or ()]
        assert [cite.url for cite in cited] == [found.uri for found in record.evidence]
        assert [cite.snippet for cite in cited] == [found.snippet for found in record.evidence]  # type: ignore[attr-defined]
        assert cited[0].title == small.title(cited[0].url)
        models = [model.id async for model in ask.models.list()]
        assert {"n2n", "rag", "n2n@space"} <= set(models) and "graph_convqa" not in models  # that needs training
        assert (await ask.models.retrieve("n2n@space")).id == "n2n@space"
        on_index = await ask.chat.completions.create(model="n2n@space", messages=TITAN)  # type: ignore[arg-type]
        assert on_index.choices[0].message.content == record.answer


async def test_a_system_of_a_module_is_served(tmp_path: Path) -> None:
    """The user who starts the server names the module. A request cannot."""
    options, name = pyfast.ServerOptions(jobs=tmp_path), "echo_system:SYSTEM"
    async with serving(None, "instant", systems=[name], options=options) as served, client(served.url) as ask:
        said = await ask.chat.completions.create(model=name, messages=TITAN)  # type: ignore[arg-type]
        assert said.choices[0].message.content == QUESTION
        with pytest.raises(openai.NotFoundError):
            await ask.chat.completions.create(model="echo_system:OTHER", messages=TITAN)  # type: ignore[arg-type]
        body = {"model": name, "messages": TITAN}
        line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body}
        file = await ask.files.create(file=("questions.jsonl", json.dumps(line).encode()), purpose="batch")
        batch = await ask.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        while batch.status not in ("completed", "failed"):
            await asyncio.sleep(0.05)
            batch = await ask.batches.retrieve(batch.id)
        assert batch.output_file_id is not None, batch.errors
        assert QUESTION in (await ask.files.content(batch.output_file_id)).text


async def test_the_official_client_streams_steps_and_the_same_answer(small: pyfast.Index) -> None:
    async with serving(small, "instant") as served, client(served.url) as ask:
        whole = await ask.chat.completions.create(model="n2n", messages=TITAN)  # type: ignore[arg-type]
        stream = await ask.chat.completions.create(
            model="n2n",
            messages=TITAN,  # type: ignore[arg-type]
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert text == whole.choices[0].message.content
        assert chunks[-1].usage == whole.usage
        assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]].count("stop") == 1
        steps = [
            chunk.model_extra["trace"] for chunk in chunks if chunk.model_extra and "trace" in chunk.model_extra
        ]
        ended = [step["name"] for step in steps if "seconds" in step]
        assert {"plan", "search_and_fuse", "answer"} <= set(ended) and len(steps) == 2 * len(ended)
        notes = [chunk.choices[0].delta.model_extra for chunk in chunks if chunk.choices]
        assert next(note["annotations"] for note in notes if note) == [
            note.model_dump() for note in whole.choices[0].message.annotations or ()
        ]
        quiet = await ask.chat.completions.create(
            model="n2n",
            messages=TITAN,  # type: ignore[arg-type]
            stream=True,
            extra_body={"trace": False},
        )
        assert not any("trace" in (chunk.model_extra or ()) for chunk in [chunk async for chunk in quiet])


async def test_cached_tokens_are_told() -> None:
    gate = Gate()
    gate.open.set()
    async with serving(None, gate) as served:
        _, said, _ = await served.ask()
        assert said["usage"] == {
            "prompt_tokens": 100,
            "completion_tokens": 10,
            "total_tokens": 110,
            "llm_calls": 1,
            "prompt_tokens_details": {"cached_tokens": 40},
        }
        assert await served.metric('pyfast_tokens_total{kind="cached",system="direct"}') == 40


async def test_earlier_turns_are_a_conversation(small: pyfast.Index) -> None:
    asked: list[str] = []

    class Rewriting:
        fingerprint = "rewriting-1"

        async def complete(self, request: Request) -> Completion:
            asked.append(request.messages[-1].content)
            return Completion('{"question": "When was Titan discovered?", "answer": "1655"}', "stop")

    turns = [
        {"role": "system", "content": "Be brief."},
        *TITAN,
        {"role": "assistant", "content": "Christiaan Huygens"},
        {"role": "user", "content": [{"type": "text", "text": "When?"}]},
    ]
    async with serving(small, Rewriting()) as served:
        status, said, _ = await served.ask("rag", messages=turns)
    assert status == 200 and said["choices"][0]["message"]["content"] == "1655"
    assert "Christiaan Huygens" in asked[0] and "When?" in asked[0]
    assert "When was Titan discovered?" in asked[1]


async def test_an_abstention_is_an_answer(small: pyfast.Index) -> None:
    class Silent:
        fingerprint = "silent-1"

        async def complete(self, request: Request) -> Completion:
            return Completion(json.dumps({"answer": INSUFFICIENT}), "stop")

    async with serving(small, Silent()) as served:
        status, said, _ = await served.ask("rag")
    assert (status, said["state"]) == (200, "abstained")
    assert said["choices"][0]["message"]["content"] == "The evidence does not contain the answer."


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"model": "nonsense"}, 404, "model_not_found"),
        ({"model": "direct@nowhere"}, 404, "model_not_found"),
        ({"model": "os:system"}, 404, "model_not_found"),
        ({"messages": []}, 400, "invalid_request"),
        ({"messages": [{"role": "assistant", "content": "so"}]}, 400, "no_question"),
        ({"messages": [{"role": "user", "content": " \n"}]}, 400, "no_question"),
        ({"messages": [{"role": "user", "content": "x" * 9000}]}, 400, "message_too_long"),
        ({"messages": [*TITAN * 101]}, 400, "too_many_messages"),
        ({"n": 2}, 400, "invalid_request"),
        ({"tools": [{"type": "function"}]}, 400, "invalid_request"),
        ({"response_format": {"type": "json_object"}}, 400, "invalid_request"),
        ({"model": "\ud800"}, 400, "invalid_request"),
    ],
)
async def test_what_cannot_be_answered_is_told(fields: dict[str, Any], status: int, code: str) -> None:
    async with serving(None, "instant") as served:
        body = json.dumps({"model": "direct", "messages": TITAN, **fields})
        headers = {"Content-Type": "application/json"}
        async with served.client.post(served.url + "/v1/chat/completions", data=body, headers=headers) as response:
            error = (await response.json())["error"]
    assert (response.status, error["code"]) == (status, code) and error["message"]


@pytest.mark.parametrize(
    ("kind", "status"),
    [("application/json; charset=utf-8", 200), ("application/x+json", 200), ("text/plain", 400), ("", 400)],
)
async def test_a_body_is_read_only_as_json(kind: str, status: int) -> None:
    async with serving(None, "instant") as served:
        body = json.dumps({"model": "direct", "messages": TITAN}).encode()
        url, headers = served.url + "/v1/chat/completions", {"Content-Type": kind}
        async with served.client.post(url, data=body, headers=headers) as response:
            assert response.status == status, await response.text()


async def test_a_question_that_fails_is_told() -> None:
    class Broken:
        fingerprint = "broken-1"

        async def complete(self, request: Request) -> Completion:
            return Completion("no JSON", "stop")

    async with serving(None, Broken()) as served:
        status, said, _ = await served.ask()
        assert (status, said["error"]["code"]) == (422, "failed_reply")
        assert await served.metric('pyfast_questions_total{state="failed",system="direct"}') == 1


async def test_the_official_client_reads_the_errors() -> None:
    async with serving(None, "instant", keys=["secret"]) as served:
        async with client(served.url) as ask:
            with pytest.raises(openai.AuthenticationError, match="API key"):
                await ask.models.list()
        async with client(served.url, api_key="secret") as ask:
            with pytest.raises(openai.NotFoundError, match="there is no model 'gpt'"):
                await ask.chat.completions.create(model="gpt", messages=TITAN)  # type: ignore[arg-type]
            assert (await ask.chat.completions.create(model="direct", messages=TITAN)).choices  # type: ignore[arg-type]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_curl(small: pyfast.Index) -> None:
    async with serving(small, "instant") as served:
        told = json.dumps({"model": "rag", "stream": True, "messages": TITAN})
        asking = asyncio.to_thread(
            subprocess.run,
            ["curl", "-sS", "--json", told, served.url + "/v1/chat/completions"],
            capture_output=True,
            text=True,
            check=True,
        )
        lines = (await asking).stdout.strip().split("\n\n")
    assert lines[-1] == "data: [DONE]" and all(line.startswith("data: ") for line in lines)


async def test_all_requests_share_the_batches(small: pyfast.Index) -> None:
    searched: list[int] = []

    class Counting(pyfast.Index):
        def search(self, queries: Any, k: int) -> Any:
            searched.append(len(queries))
            return super().search(queries, k)

    async with serving(Counting(small.folder), "instant") as served:
        found = await asyncio.gather(*(served.ask(system) for system in ("rag", "n2n", "hseq") * 10))
    assert {status for status, _, _ in found} == {200}
    assert max(searched) > 3


async def test_faults_are_told_in_words_that_fit(small: pyfast.Index) -> None:
    async with serving(small, "instant", systems=["rag"]) as served:
        told = (await served.ask("rag", filter=[]))[1]["error"]["message"]
        assert told == "filter: List should have at least 1 item after validation, not 0"
        message = {"role": "user", "content": "Who?", "tool_call_id": "x"}
        told = (await served.ask("rag", messages=[message]))[1]["error"]["message"]
        assert told == "messages.0: tool_call_id: there is no such field"  # None that it also refuses.
    async with serving(None, "instant", systems=["direct"]) as served:
        status, told, _ = await served.post("/v1/retrieve", {"query": "moons"})
        assert (status, told["error"]["message"]) == (400, "there is no index to search")


async def test_an_application_whose_lifespan_does_not_run_says_so(caplog: pytest.LogCaptureFixture) -> None:
    app = create_app(None, "instant", systems=["direct"])
    body = json.dumps({"model": "direct", "messages": TITAN}).encode()
    kind = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": kind, "client": None}
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app({**scope, "query_string": b"", "root_path": ""}, receive, send)
    assert sent[0]["status"] == 500
    assert "run its lifespan" in caplog.text
