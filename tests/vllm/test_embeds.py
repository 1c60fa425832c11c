"""Prompts given as embeddings."""

import asyncio
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from pyfast.errors import CallError
from pyfast.llm import LLM, Request, dialogue

pytestmark = pytest.mark.asyncio(loop_scope="session")

QUESTION = "What is the capital of France?"
WIDTH = 576


@pytest.fixture(scope="module")
def embeds(model: Path) -> npt.NDArray[np.float32]:
    """The question, through the chat template and the model's own table of embeddings, both read without vLLM."""
    from safetensors.numpy import load_file
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    messages = [{"role": "user", "content": QUESTION}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    table = load_file(model / "model.safetensors")["model.embed_tokens.weight"]
    return np.asarray(table[tokenizer.encode(text, add_special_tokens=False)], np.float32)


async def test_embeddings_are_answered_as_their_tokens(llm: LLM, embeds: npt.NDArray[np.float32]) -> None:
    tokens = await llm.complete(Request(dialogue(QUESTION), 30))
    assert "Paris" in tokens.text
    same, other, mixed = await asyncio.gather(
        llm.complete(Request((), 30, embeds=embeds)),
        llm.complete(Request((), 30, embeds=embeds[::-1])),
        llm.complete(Request(dialogue(QUESTION), 30)),
    )
    assert same.text == mixed.text == tokens.text != other.text
    assert same.prompt_tokens == tokens.prompt_tokens == len(embeds)
    schema = {"type": "object", "properties": {"capital": {"enum": ["Rome", "Paris"]}}, "required": ["capital"]}
    assert (await llm.complete(Request((), 30, schema, embeds=embeds))).text == '{"capital": "Paris"}'


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (np.zeros((4, WIDTH - 1), np.float32), r"\[tokens, 576\] .* not \[4, 575\]"),
        (np.zeros(WIDTH, np.float32), r"not \[576\]"),
        (np.zeros((1, 4, WIDTH), np.float32), r"not \[1, 4, 576\]"),
        (np.zeros((0, WIDTH), np.float32), r"not \[0, 576\]"),
        (np.zeros((1020, WIDTH), np.float32), "window of 1024"),
        (np.full((4, WIDTH), np.nan, np.float32), "finite"),
    ],
    ids=["narrow", "one row", "a batch", "none", "too many", "not finite"],
)
async def test_unusable_embeddings_are_refused(llm: LLM, wrong: npt.NDArray[np.float32], reason: str) -> None:
    with pytest.raises(CallError, match=reason):
        await llm.complete(Request((), 5, embeds=wrong))
    assert (await llm.complete(Request(dialogue("hello"), 1))).completion_tokens == 1
