"""An evidence graph through vLLM: the same logits, and the same greedy answers, as transformers has."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from runs import answer_all

from pyfast.engine import Question, Record
from pyfast.llm import LLM, Request, open_llm
from pyfast.retrieval import Index
from pyfast.systems import load_system
from pyfast.systems.graph_convqa.encoder import GraphEncoder, Shape, save_encoder
from pyfast.systems.graph_convqa.entities import linearise
from pyfast.systems.graph_convqa.evidence_items import find_evidence_items
from pyfast.systems.graph_convqa.injection import Turn, build_graph, encode_graph

pytestmark = pytest.mark.asyncio(loop_scope="session")

QUESTIONS, TOKENS = 50, 6


@pytest.fixture(scope="module")
def trained(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real model beside an encoder that has not learnt yet, but has something to say."""
    import torch

    folder = tmp_path_factory.mktemp("trained")
    torch.manual_seed(1)
    save_encoder(GraphEncoder(Shape(576)), folder)
    (folder / "model").symlink_to(model)
    return folder


@pytest.fixture(scope="module")
def prompts(small: Index, trained: Path, example_questions: list[dict[str, Any]]) -> list[np.ndarray]:
    """Prompts of 50 turns: each question alone, and after the one before it."""
    asked = [str(question["question"]) for question in example_questions]
    linear = linearise(small, find_evidence_items(small, asked, 20, 3))
    first = [Turn(one, (), text) for one, text in zip(linear, asked, strict=True)]
    said = [str(question["answers"][0]) for question in example_questions]  # type: ignore[index]
    second = [
        Turn(turn.linear, ((before.question, answer),), turn.question)
        for before, answer, turn in zip(first, said, first[1:] + first[:1], strict=True)
    ]
    turns = (first + second)[:QUESTIONS]
    framed = build_graph(turns, str(trained), 900, 900)
    edges = [len(prompt.graph.indices) for prompt in framed]
    assert len(framed) == QUESTIONS and min(edges) > 0 and np.mean(edges) > 40
    return encode_graph(framed, str(trained))


@pytest.mark.slow(suite="vllm")
async def test_the_same_greedy_answers_as_transformers(llm: LLM, model: Path, prompts: list[Any]) -> None:
    peer = open_llm(f"transformers:{model}")
    await peer.start()
    requests = [Request((), TOKENS, embeds=embeds) for embeds in prompts]
    found = await asyncio.gather(*map(llm.complete, requests))
    expected = [await peer.complete(request) for request in requests]
    await peer.close()
    assert [completion.text for completion in found] == [completion.text for completion in expected]
    assert len({completion.text for completion in found}) > QUESTIONS // 5
    assert [completion.prompt_tokens for completion in found] == [len(embeds) for embeds in prompts]


async def test_the_same_logits_of_the_first_token(llm: LLM, model: Path, prompts: list[Any]) -> None:
    """vLLM gives logarithms of probabilities: of its twenty best, all are transformers' within 1e-3."""
    import torch
    from transformers import AutoModelForCausalLM
    from vllm import SamplingParams
    from vllm.inputs import embeds_input

    (engine,) = llm._shared.engines  # type: ignore[attr-defined]
    peer = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    for number, embeds in enumerate(prompts[:4]):
        given = torch.tensor(embeds)
        sampling = SamplingParams(temperature=0.0, max_tokens=1, logprobs=20)
        outs = [out async for out in engine.generate(embeds_input(given), sampling, f"logits-{number}")]
        (found,) = outs[-1].outputs[0].logprobs
        with torch.inference_mode():
            expected = peer(inputs_embeds=given[None], logits_to_keep=1).logits[0, -1].log_softmax(0)
        assert len(found) >= 20
        for token, one in found.items():
            assert one.logprob == pytest.approx(expected[token].item(), abs=1e-3)


async def test_conversations_through_the_whole_system(llm: LLM, trained: Path, small: Index) -> None:
    asked = [
        Question("a", "Who discovered Titan?", "titan"),
        Question("b", "Which planet does it circle?", "titan"),
        Question("c", "Xyzzy?", "nothing"),
    ]
    system = load_system("graph_convqa")
    settings = system.configure({"trained": str(trained), "memory": "random", "k": "4", "passages": "20"})
    records: list[Record] = []
    await answer_all(iter(asked), system.ask(settings), small, llm, records.append)
    written = [record.as_json() for record in records]
    assert [record["id"] for record in written] == ["a", "b", "c"]
    assert all(record["state"] in ("answered", "abstained") for record in written), written
    assert written[0]["trace"]["nodes"] > 40 and written[2]["trace"]["nodes"] == 0
    assert written[1]["usage"]["prompt_tokens"] > written[1]["trace"]["nodes"]
