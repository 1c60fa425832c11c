"""The answer's text comes as the LLM writes it, and is the answer; the LLM is a server in a process of its own."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from hostile_server import allow, counts
from http_server import TITAN, serving
from streaming_server import ANSWERS, streaming
from streaming_server import TITAN as ANSWER
from word_vectors import WordVectors

import pyfast
from pyfast.knowledge import Session
from pyfast.llm import Completion, Request


@pytest.fixture(scope="module")
def llm() -> Iterator[str]:
    with streaming() as url:
        yield url


@pytest.fixture
def fresh() -> Iterator[str]:
    with streaming() as url:
        yield url


async def streamed(url: str, system: str, **extra: Any) -> tuple[list[str], list[Any]]:
    """The pieces of the answer, as OpenAI's own client reads them, and all chunks."""
    async with openai.AsyncOpenAI(base_url=url + "/v1", api_key="none", max_retries=0) as client:
        stream = await client.chat.completions.create(
            model=system,
            messages=TITAN,  # type: ignore[arg-type]
            stream=True,
            stream_options={"include_usage": True},
            extra_body=extra,
        )
        chunks = [chunk async for chunk in stream]
    return [said for one in chunks if one.choices and (said := one.choices[0].delta.content)], chunks


@pytest.mark.parametrize("system", ["rag", "n2n", "decompose", "cot", "direct", "subqrag", "iter_retgen", "ircot"])
async def test_the_pieces_are_the_answer_of_the_record(
    system: str, llm: str, known: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyfast.knowledge.session.Embedder", WordVectors)
    model = f"openai:plain@{llm}"
    async with serving(known.index, model, systems=[system]) as served:
        pieces, chunks = await streamed(served.url, system)
        _, whole, _ = await served.ask(system)
        (choice,) = whole["choices"]
        assert "".join(pieces) == choice["message"]["content"] == ANSWER and len(pieces) > 5
        assert chunks[-1].usage.model_dump(exclude_unset=True) == whole["usage"]
        notes = [chunk.choices[0].delta.model_extra for chunk in chunks if chunk.choices]
        assert next(note["annotations"] for note in notes if note) == choice["message"]["annotations"]
    async with pyfast.Engine(known.index, model) as engine:
        heard: list[str] = []
        record = await engine.answer(TITAN[0]["content"], system=system, on_text=heard.append)
        assert record.answer == ANSWER and len(set(heard)) > 5
        assert all(record.answer.startswith(text) for text in heard) and heard == sorted(heard, key=len)
        plain = await engine.answer(TITAN[0]["content"], system=system)
        assert plain.as_json() == record.as_json()


@pytest.mark.parametrize("system", ["rag", "direct", "cot"])
async def test_a_long_answer_comes_in_pieces(system: str, llm: str, small: pyfast.Index) -> None:
    async with serving(small, f"openai:plain@{llm}", systems={system: {"long_answer": True}}) as served:
        pieces, _ = await streamed(served.url, system)
        _, whole, _ = await served.ask(system)
    assert "".join(pieces) == whole["choices"][0]["message"]["content"] == f"{ANSWER}\n\n{ANSWER}"
    assert len(pieces) > 10


@pytest.mark.parametrize(
    ("model", "answer", "least"),
    [
        ("abstains", "The evidence does not contain the answer.", 1),
        ("nearly", ANSWERS["nearly"][0], 2),
        ("controls", "red Titan and more", 2),
        ("spaces", "Titan  of Saturn", 2),
        ("breaks", ANSWER, 5),
        ("whole", ANSWER, 1),
        ("refuses_streams", ANSWER, 1),
        ("refuses_options", ANSWER, 5),
    ],
)
async def test_odd_replies_never_make_another_answer(model: str, answer: str, least: int, fresh: str) -> None:
    async with serving(None, f"openai:{model}@{fresh}", llm_options={"backoff_s": 0.01}) as served:
        pieces, _ = await streamed(served.url, "direct")
        assert "".join(pieces) == answer and len(pieces) >= least
    assert counts(fresh).get("wholes", 0) == (model in ("whole", "refuses_streams"))


@pytest.mark.parametrize("model", ["long", "cut"])
async def test_a_stream_whose_answer_changes_ends_with_an_error(model: str, fresh: str) -> None:
    async with serving(None, f"openai:{model}@{fresh}") as served:
        with pytest.raises(openai.APIError, match="discard the text so far") as told:
            await streamed(served.url, "direct")
        assert isinstance(told.value.body, dict) and told.value.body["code"] == "answer_changed"
        pieces, _ = await streamed(served.url, "direct")
        assert "".join(pieces) == ANSWERS[model][1]


async def test_the_text_comes_before_the_reply_has_ended(fresh: str) -> None:
    async with serving(None, f"openai:holds@{fresh}") as served:
        body = {"model": "direct", "messages": TITAN, "stream": True, "trace": False}
        text = ""
        post = served.client.post(served.url + "/v1/chat/completions", json=body)
        async with asyncio.timeout(20), post as response:
            async for line in response.content:
                if line.startswith(b"data: {"):
                    for choice in json.loads(line[6:])["choices"]:
                        text += choice["delta"].get("content", "")
                if text:  # The rest of the reply waits for this.
                    await asyncio.to_thread(allow, fresh, 1)
    assert text == "Titan is held" and counts(fresh)["streams"] == 1


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_frees_its_places_at_once(stream: bool, fresh: str) -> None:
    """The server of the LLM sees the connection closed; the only place of the engine and of the LLM is free."""
    async with serving(None, f"openai:holds@{fresh}", llm_options={"concurrency": 1}, concurrency=1) as served:
        asking = asyncio.ensure_future(served.ask(stream=stream))
        while not (await asyncio.to_thread(counts, fresh)).get("held"):
            await asyncio.sleep(0.01)
        assert await served.metric("pyfast_questions_admitted") == 1
        asking.cancel()
        async with asyncio.timeout(2):
            while not (await asyncio.to_thread(counts, fresh)).get("closed"):
                await asyncio.sleep(0.005)
        assert await served.metric("pyfast_questions_admitted") == 0
        await asyncio.to_thread(allow, fresh, 1)
        async with asyncio.timeout(5):
            status, said, _ = await served.ask()
    assert status == 200 and said["choices"][0]["message"]["content"] == "Titan is held"


TEXTS = [
    "Titan",
    "T",
    "",
    " ",
    "insufficient",
    "Insufficient evidence",
    "insufficient evidence...",
    "...x",
    "\\b\\n",
]
TEXTS += ['"\\/é\u2028漢\U0001f600', "\x1b[31mred\x1b[0m", "a\u202eb", "tab\tand\r\nline\x00", "Σ" * 99, "x" * 300]
REPLIES = [json.dumps({"answer": text}, ensure_ascii=ascii) for text in TEXTS for ascii in (True, False)]
REPLIES += ["\n " + reply for reply in REPLIES[:2]] + [
    reply[:-1] + ', "more": [1, {"answer": "no"}]}' for reply in REPLIES
]
REPLIES += ['```json\n{"answer": "Titan"}\n```', '<think>{"answer": "no"}</think>{"answer": "Titan"}']
REPLIES += ['{"answer": "Titan",}', '{"a": {"answer": "no"}, "answer": "Titan"}', '{"answer": ["Titan"]}']


@pytest.mark.parametrize("reply", REPLIES)
async def test_no_beginning_of_a_reply_tells_what_the_answer_has_not(reply: str) -> None:
    """After each character, the text so far is a beginning of the answer that the whole reply gives."""

    class Typing:
        fingerprint = "typing-1"

        async def complete(self, request: Request) -> Completion:
            if request.on_text is not None:
                for end in range(len(reply) + 1):
                    request.on_text(reply[:end])
            return Completion(reply, "stop")

    async with pyfast.Engine(llm=Typing(), budget={"attempts": 1}) as engine:
        heard: list[str] = []
        record = await engine.answer("Who?", system="direct", on_text=heard.append)
        plain = await engine.answer("Who?", system="direct")
        assert (record.answer, record.state) == (plain.answer, plain.state)
        assert all((record.answer or "").startswith(text) for text in heard)
        if record.answer in ("Titan", "Σ" * 99, "x" * 300) and reply.lstrip().startswith('{"answer": "'):
            assert max(heard, key=len) == record.answer
