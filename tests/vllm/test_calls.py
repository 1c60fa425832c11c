"""Calls of a real engine, one at a time and many at once."""

import asyncio
import itertools
import os
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pyfast.errors import CallError
from pyfast.llm import LLM, Completion, Message, Request, dialogue

pytestmark = pytest.mark.asyncio(loop_scope="session")


class Capital(BaseModel):
    capital: str
    country: str


SCHEMA = Capital.model_json_schema()
CAPITALS = {"France": "Paris", "Italy": "Rome", "Japan": "Tokyo", "Peru": "Lima", "Egypt": "Cairo"}


def ask(country: str, **changes: Any) -> Request:
    return Request(dialogue(f"What is the capital of {country}?", "Answer with JSON."), 60, SCHEMA, **changes)


async def test_an_answer_obeys_its_schema_and_is_repeatable(llm: LLM) -> None:
    first = await llm.complete(ask("France"))
    assert Capital.model_validate_json(first.text).capital == "Paris"
    assert "\n" not in first.text and first.finish_reason == "stop"
    assert first.prompt_tokens > 10 and first.completion_tokens > 5
    assert (await llm.complete(ask("France"))).text == first.text


async def test_the_text_is_told_while_it_is_written(llm: LLM) -> None:
    heard: list[str] = []
    done = await llm.complete(ask("France", on_text=heard.append))
    assert heard[-1] == done.text == (await llm.complete(ask("France"))).text and len(heard) > 5
    assert all(text.startswith(before) for before, text in itertools.pairwise(heard))


async def test_text_without_a_schema_is_cut_off_at_the_limit(llm: LLM) -> None:
    done = await llm.complete(Request(dialogue("Tell me a long story about a river."), 5))
    assert done.finish_reason == "length" and done.completion_tokens == 5 and done.text


async def test_conversations_go_through_the_chat_template(llm: LLM, model: Path) -> None:
    from transformers import AutoTokenizer

    said = dialogue("What is the capital of France?", "You know geography.")
    said += (Message("assistant", "Paris."), Message("user", "And of Italy?"))
    tokenizer = AutoTokenizer.from_pretrained(model)
    messages = [{"role": message.role, "content": message.content} for message in said]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    done = await llm.complete(Request(said, 20))
    assert done.prompt_tokens == len(tokenizer.encode(text)) and "Rome" in done.text
    alone = await llm.complete(Request(said[-1:], 20))
    assert alone.prompt_tokens < done.prompt_tokens and "Rome" not in alone.text


async def test_a_shared_prefix_is_read_once(llm: LLM) -> None:
    story = "Once upon a time there was a river. " * 20
    first, second = [await llm.complete(Request(dialogue(f"{story}\n{end}"), 2)) for end in ("Why?", "Where?")]
    assert first.cached_tokens < 64 < 128 <= second.cached_tokens < second.prompt_tokens


async def test_the_seed_is_used(llm: LLM) -> None:
    def story(seed: int) -> Request:
        return Request(dialogue("Tell me a story."), 12, temperature=1.0, seed=seed)

    texts = [(await llm.complete(story(seed))).text for seed in (1, 2, 3, 1)]
    assert texts[0] == texts[3] and len(set(texts)) > 1


async def test_many_at_once_answer_as_each_alone(llm: LLM) -> None:
    requests = [
        request
        for country in CAPITALS
        for request in (ask(country), Request(dialogue(f"What is the capital of {country}?"), 20))
    ]
    alone = [(await llm.complete(request)).text for request in requests]
    assert sum(capital in text for capital, text in zip(CAPITALS.values(), alone[1::2], strict=True)) >= 3
    together = await asyncio.gather(*map(llm.complete, requests * 4))
    assert len(together) > llm.slots
    assert [done.text for done in together] == alone * 4


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (Request(dialogue("word " * 2000), 10), r"\d+ tokens.* window of 1024"),
        (Request(dialogue("hello"), 1020), r"\d+ tokens\) and the answer \(up to 1020\)"),
        (Request(dialogue("lone surrogate \ud800"), 10), "rejected the prompt"),
        (Request(dialogue("hello"), 10, temperature="hot"), "refused"),  # type: ignore[arg-type]
        (Request(dialogue("hello"), 10, {"type": "integer", "minimum": 2, "maximum": 1}), "schema"),
        (Request(dialogue("hello"), 10, {"type": "banana"}), "banana"),
        (Request(dialogue("hello"), 10, {"$ref": "#/$defs/nowhere"}), "nowhere"),
    ],
    ids=["too long", "no room", "not unicode", "no number", "impossible schema", "no schema", "lost schema"],
)
async def test_an_impossible_request_fails_alone(llm: LLM, request_: Request, reason: str) -> None:
    neighbour, failed = await asyncio.gather(
        llm.complete(ask("France")), llm.complete(request_), return_exceptions=True
    )
    assert isinstance(failed, CallError) and "\n" not in str(failed)
    with pytest.raises(CallError, match=reason):
        raise failed
    assert isinstance(neighbour, Completion) and Capital.model_validate_json(neighbour.text).capital == "Paris"


async def test_cancelled_calls_free_their_places(llm: LLM) -> None:
    good = (await llm.complete(ask("France"))).text
    endless = {"type": "array", "items": {"type": "integer"}, "minItems": 5000}
    calls = [
        asyncio.create_task(llm.complete(Request(dialogue(f"Count. {i}"), 900, endless)))
        for i in range(llm.slots + 2)
    ]
    await asyncio.sleep(1)
    neighbour = asyncio.create_task(llm.complete(ask("Italy")))
    for call in calls:
        call.cancel()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results)
    started = time.monotonic()
    assert (await llm.complete(ask("France"))).text == good
    assert Capital.model_validate_json((await neighbour).text)
    assert time.monotonic() - started < 20, "900 tokens of each cancelled call would take far longer"


async def test_the_environment_is_left_alone(llm: LLM) -> None:
    leaked = [name for name in os.environ if name.startswith(("VLLM_", "PYFAST_VLLM")) or name == "LD_PRELOAD"]
    assert leaked == []
