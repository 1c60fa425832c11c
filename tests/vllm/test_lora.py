"""What was learnt, served beside the model that learnt it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from pyfast.errors import InputError, ModelNotFoundError
from pyfast.llm import Request, dialogue, open_llm

pytestmark = pytest.mark.asyncio(loop_scope="session")

QUESTIONS = ["What is the capital of France?", "Name a moon of Saturn.", "Who wrote Hamlet?", "What is 2 + 2?"]
RANK, ALPHA = 4, 8
PROJECTIONS = ("self_attn.q_proj", "self_attn.o_proj", "mlp.down_proj")


@pytest.fixture(scope="module")
def updates(model: Path) -> dict[str, tuple[Any, Any]]:
    """Random A [rank, in] and B [out, rank] of some projections, by the name of their weights."""
    torch = pytest.importorskip("torch")
    from safetensors import safe_open

    torch.manual_seed(1)
    found = {}
    with safe_open(model / "model.safetensors", framework="pt") as weights:
        for layer in (0, 12, 29):
            for projection in PROJECTIONS:
                name = f"model.layers.{layer}.{projection}"
                out, inside = weights.get_slice(f"{name}.weight").get_shape()
                found[name] = torch.randn(RANK, inside) * 0.08, torch.randn(out, RANK) * 0.08
    return found


@pytest.fixture(scope="module")
def adapter(updates: dict[str, tuple[Any, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The updates in peft's format."""
    from safetensors.torch import save_file

    folder = tmp_path_factory.mktemp("lora") / "adapter"
    folder.mkdir()
    tensors = {}
    for name, (a, b) in updates.items():
        tensors[f"base_model.model.{name}.lora_A.weight"] = a
        tensors[f"base_model.model.{name}.lora_B.weight"] = b
    save_file(tensors, folder / "adapter_model.safetensors")
    targets = [projection.split(".")[1] for projection in PROJECTIONS]
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": ALPHA}
    config |= {"target_modules": targets, "bias": "none", "base_model_name_or_path": ""}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def merged(model: Path, updates: dict[str, tuple[Any, Any]], folder: Path) -> Path:
    """The model with W + alpha / rank * B A in the place of each W, by hand."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    whole = AutoModelForCausalLM.from_pretrained(model)
    for name, (a, b) in updates.items():
        whole.get_submodule(name).weight.data += ALPHA / RANK * b @ a
    whole.save_pretrained(folder)
    AutoTokenizer.from_pretrained(model).save_pretrained(folder)
    return folder


@pytest.mark.slow(suite="vllm")
async def test_the_adapter_beside_the_model_says_what_the_merged_model_does(
    model: Path, adapter: Path, updates: dict[str, tuple[Any, Any]], options: dict[str, Any], tmp_path: Path
) -> None:
    requests = [Request(dialogue(question), 12) for question in QUESTIONS]
    said = {}
    peers = {"plain": model, "merged": merged(model, updates, tmp_path / "merged")}
    for name, folder in peers.items():
        peer = open_llm(f"transformers:{folder}")
        await peer.start()
        said[name] = [(await peer.complete(request)).text for request in requests]
        await peer.close()
    assert said["plain"] != said["merged"]
    llm = open_llm(f"vllm:{model}", lora=str(adapter), **options)
    await llm.start()
    try:
        found = await asyncio.gather(*map(llm.complete, requests))
        assert [it.text for it in found] == said["merged"]
        schema = {
            "type": "object",
            "properties": {"capital": {"enum": ["Rome", "Paris"]}},
            "required": ["capital"],
        }
        assert json.loads((await llm.complete(Request(dialogue(QUESTIONS[0]), 20, schema))).text)["capital"]
    finally:
        await llm.close()


async def test_the_adapter_is_a_part_of_the_model(model: Path, adapter: Path, tmp_path: Path) -> None:
    plain, with_adapter = open_llm(f"vllm:{model}"), open_llm(f"vllm:{model}", lora=str(adapter))
    assert plain.fingerprint != with_adapter.fingerprint
    assert with_adapter.fingerprint == open_llm(f"vllm:{model}", lora=str(adapter)).fingerprint
    with pytest.raises(ModelNotFoundError, match="no adapter at"):
        open_llm(f"vllm:{model}", lora=str(tmp_path))
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(InputError, match="does not contain a rank"):
        open_llm(f"vllm:{model}", lora=str(tmp_path))
