"""transformers as a backend, with a real model of a few layers."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import tiny_model

from pyfast.errors import CallError, LLMUnavailableError, ModelNotFoundError
from pyfast.llm import LLM, Completion, Message, Request, dialogue, open_llm
from pyfast.llm.reply_cleaning import cut_at

pytest.importorskip("torch")
ASKED = Request(dialogue("What is the capital of France?", "You know geography."), 12)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="module")
def llm(model: Path) -> Iterator[LLM]:
    backend = open_llm(f"transformers:{model}", context_window=300)
    asyncio.run(backend.start())
    yield backend
    asyncio.run(backend.close())


def say(llm: LLM, request: Request) -> Completion:
    return asyncio.run(llm.complete(request))


def test_greedy_is_the_models_own_choice_step_by_step(llm: LLM, model: Path) -> None:
    """Against the argmax of one forward pass after the other."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, peer = AutoTokenizer.from_pretrained(model), AutoModelForCausalLM.from_pretrained(model)
    messages = [{"role": said.role, "content": said.content} for said in ASKED.messages]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    tokens = tokenizer.encode(text, add_special_tokens=False)
    said: list[int] = []
    with torch.inference_mode():
        while len(said) < 12 and tokenizer.eos_token_id not in said:
            said.append(int(peer(torch.tensor([tokens + said])).logits[0, -1].argmax()))
    done = say(llm, ASKED)
    assert done.text == tokenizer.decode(said, skip_special_tokens=True)
    assert (done.prompt_tokens, done.completion_tokens) == (len(tokens), len(said))
    assert done.finish_reason == ("stop" if said[-1] == tokenizer.eos_token_id else "length")


def test_embeddings_are_answered_as_their_tokens(llm: LLM, model: Path) -> None:
    from safetensors.numpy import load_file
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    messages = [{"role": said.role, "content": said.content} for said in ASKED.messages]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    table = load_file(model / "model.safetensors")["model.embed_tokens.weight"]
    embeds = table[tokenizer.encode(text, add_special_tokens=False)]
    assert say(llm, Request((), 12, embeds=embeds)) == say(llm, ASKED)
    assert say(llm, Request((), 12, embeds=embeds[::-1])).text != say(llm, ASKED).text


def test_the_seed_is_used(llm: LLM) -> None:
    texts = [say(llm, replace(ASKED, temperature=1.0, seed=seed)).text for seed in (1, 2, 3, 1)]
    assert texts[0] == texts[3] and len(set(texts)) > 1


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"embeds": np.zeros((4, 31), np.float32)}, r"\[tokens, 32\] .* not \[4, 31\]"),
        ({"embeds": np.zeros((0, 32), np.float32)}, r"not \[0, 32\]"),
        ({"embeds": np.full((4, 32), np.nan, np.float32)}, "finite"),
        ({"embeds": np.zeros((300, 32), np.float32)}, "window of 300"),
        ({"messages": dialogue("word " * 300)}, "window of 300"),
        ({"messages": dialogue("\ud800")}, "rejected the prompt"),
    ],
    ids=["narrow", "none", "not finite", "too many", "too long", "not unicode"],
)
def test_an_impossible_request_fails_alone(llm: LLM, wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(CallError, match=reason) as error:
        say(llm, replace(ASKED, **wrong))
    assert "\n" not in str(error.value)
    assert say(llm, ASKED).completion_tokens > 0


def test_it_starts_once_and_closes_for_good(model: Path) -> None:
    async def life() -> None:
        llm = open_llm(f"transformers:{model}")
        before = llm.fingerprint
        with pytest.raises(LLMUnavailableError, match="never started"):
            await llm.complete(ASKED)
        await llm.start()
        await llm.start()
        assert llm.context_window == 2048 and llm.fingerprint == before
        await llm.close()
        await llm.close()
        with pytest.raises(LLMUnavailableError, match="closed"):
            await llm.complete(ASKED)

    asyncio.run(life())


def test_a_folder_that_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="no model folder"):
        open_llm(f"transformers:{tmp_path}")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelNotFoundError) as error:
        asyncio.run(open_llm(f"transformers:{tmp_path}").start())
    assert "\n" not in str(error.value)


def test_a_text_is_continued_and_ends_at_a_mark(llm: LLM, model: Path) -> None:
    """Against what the whole reply is without either."""
    from transformers import AutoTokenizer

    whole = say(llm, ASKED)
    begun = whole.text[: len(whole.text) // 2]
    going_on = replace(ASKED, messages=(*ASKED.messages, Message("assistant", begun)))
    tokenizer = AutoTokenizer.from_pretrained(model)
    messages = [{"role": said.role, "content": said.content} for said in ASKED.messages]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True) + begun
    assert say(llm, going_on).prompt_tokens == len(tokenizer.encode(text, add_special_tokens=False))
    mark = whole.text[3:6]
    done = cut_at(say(llm, replace(ASKED, stop=(mark,))), (mark,))
    assert done.text == whole.text.partition(mark)[0] and done.finish_reason == "stop"
    assert done.completion_tokens < whole.completion_tokens
