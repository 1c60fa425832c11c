"""Prompts in embeddings over HTTP: vLLM's `/completions`, whose wire format vLLM's own loader defines."""

import base64
import io

import numpy as np
import pytest
from servers import ASK, body, replying, serving

from pyfast.errors import CallError
from pyfast.llm import Request

torch = pytest.importorskip("torch")
EMBEDS = np.arange(12, dtype=np.float32).reshape(4, 3)[::-1]
ANSWER = {
    "object": "text_completion",
    "choices": [{"index": 0, "text": "Paris", "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 4, "completion_tokens": 2},
}


async def test_a_tensor_goes_over_the_wire() -> None:
    handler, asked = replying(ANSWER, body("text"))
    async with serving(handler, extra={"top_k": 1}) as llm:
        done = await llm.complete(Request((), 7, embeds=EMBEDS))
        assert (done.text, done.finish_reason, done.prompt_tokens, done.completion_tokens) == (
            "Paris",
            "stop",
            4,
            2,
        )
        assert (await llm.complete(ASK)).text == "text"
    sent, text = asked
    assert sent.keys() == {"model", "top_k", "prompt_embeds", "max_tokens", "temperature", "seed"}
    assert sent["max_tokens"] == 7 and "messages" in text and "prompt_embeds" not in text
    loaded = torch.load(io.BytesIO(base64.b64decode(sent["prompt_embeds"], validate=True)), weights_only=True)
    assert loaded.dtype == torch.float32
    np.testing.assert_array_equal(loaded.numpy(), EMBEDS)


async def test_a_server_that_takes_no_embeddings_fails_the_call() -> None:
    from aiohttp import web

    handler, _ = replying(body(), web.json_response({"error": {"message": "no such field"}}, status=400))
    async with serving(handler) as llm:
        await llm.complete(ASK)
        with pytest.raises(CallError, match="no such field"):
            await llm.complete(Request((), 7, embeds=EMBEDS))
