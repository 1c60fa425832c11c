"""The server that tests of whole runs use does what it says, and the backend survives each of its moods."""

import asyncio
import random
from pathlib import Path

import orjson
import pytest
from hostile_server import MODES, counts, hostile
from pydantic import BaseModel, Field, ValidationError

from pyfast.errors import CallError, OutageError
from pyfast.llm import LLM, Completion, Request, dialogue, open_llm


class Plan(BaseModel):
    hops: int = Field(ge=1, le=3)
    query: str = Field(max_length=20)


def ask(number: int) -> Request:
    return Request(dialogue(f"Where was number {number} born?"), 16, Plan.model_json_schema())


async def outcome(backend: LLM, number: int) -> Completion | CallError | OutageError:
    try:
        return await backend.complete(ask(number))
    except (CallError, OutageError) as error:
        return error


async def opened(url: str, **options: float) -> LLM:
    backend = open_llm(f"openai:hostile@{url}", **{"backoff_s": 0.001, **options})
    await backend.start()
    return backend


async def test_every_mode(tmp_path: Path) -> None:
    log = tmp_path / "log"
    weights = ",".join(f"{mode}={0.2 if mode == 'late' else 1}" for mode in MODES)
    seen: dict[str, Completion | CallError | OutageError] = {}
    before = dict.fromkeys(MODES, 0)
    with hostile("--weights", weights, "--late-s", "5", "--log", str(log)) as url:
        backend = await opened(url, attempts=1, timeout_s=2)
        for number in range(1000):
            done = await outcome(backend, number)
            modes = counts(url)["modes"]
            (mode,) = {mode for mode in MODES if modes[mode] > before[mode]}
            seen[mode], before = done, modes
            if len(seen) == len(MODES):
                break
        await backend.close()
    for mode in ("error", "busy", "cut", "late", "huge", "empty"):
        assert isinstance(seen[mode], CallError | OutageError), mode
    texts = {mode: done.text for mode, done in seen.items() if isinstance(done, Completion)}
    reasons = {mode: done.finish_reason for mode, done in seen.items() if isinstance(done, Completion)}
    ends = {"length": "length", "filtered": "content_filter", "unfinished": "unknown"}
    assert reasons == {"good": "stop", "truncated": "stop", "wrong": "stop", **ends}
    for mode in ("good", "unfinished"):
        Plan.model_validate_json(texts[mode])
    for mode in ("truncated", "wrong", "length", "filtered"):
        with pytest.raises(ValidationError):
            Plan.model_validate_json(texts[mode])
    assert isinstance(orjson.loads(texts["wrong"]), dict)
    lines = [line.split() for line in log.read_text().splitlines()]
    assert {mode for mode, _ in lines} >= MODES.keys() - {"late"}, "those served, and no late one was"
    assert all(len(digest) == 16 for _, digest in lines)


async def test_what_happens_does_not_depend_on_the_order() -> None:
    results = []
    for order in (range(60), random.Random(1).sample(range(60), 60)):
        with hostile("--weights", "good=3,error=1,busy=1,wrong=1", "--seed", "5", "--retry-after", "0.01") as url:
            backend = await opened(url, attempts=20, timeout_s=60)
            done = await asyncio.gather(*(outcome(backend, number) for number in order))
            told = [answer.text if isinstance(answer, Completion) else str(answer) for answer in done]
            state = counts(url)
            served = sum(isinstance(answer, Completion) for answer in done)
            await backend.close()
        assert state["requests"] == sum(state["bodies"].values()) == sum(state["modes"].values())
        assert served == state["modes"]["good"] + state["modes"]["wrong"] and state["modes"]["busy"]
        spent = sum(answer.prompt_tokens for answer in done if isinstance(answer, Completion))
        assert state["prompt_tokens"] == spent > 0
        plain = [answer.replace(url, "URL") for answer in told]
        results.append((dict(zip(order, plain, strict=True)), state))
    assert results[0] == results[1]
