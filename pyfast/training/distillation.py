"""Train an adapter on examples from finished runs, and measure the loss on held-out examples."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from pyfast.errors import InputError
from pyfast.llm.local import chat_tokens, digest, folder_hash
from pyfast.training.loop import Estimate, Point, Schedule, open_devices, write_recipe
from pyfast.training.lora import (
    ADAPTER,
    Compute,
    Example,
    LoraRecipe,
    fit_adapter,
    losses_of,
    open_with_lora,
    write_gguf,
)
from pyfast.training.run_examples import RunExample
from pyfast.utils.log import LOG


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe(LoraRecipe):
    """How an adapter is trained, apart from the examples and the schedule."""

    max_tokens: int = 2048
    """The maximum number of tokens of an example. Longer examples are left out"""


@dataclass(frozen=True, slots=True)
class Taught:
    """The result of training on examples."""

    curve: list[Point]
    tokens: int
    """The number of tokens in the examples, prompts and replies together"""
    too_long: int
    """How many examples were left out because they had too many tokens"""
    losses: Mapping[str, tuple[float, float]]
    """The mean loss on held-out examples without and with the adapter, by prompt. Empty if training stopped
    early"""


def train(
    examples: Sequence[RunExample],
    held_out: Sequence[RunExample],
    model_folder: Path,
    out: Path,
    recipe: Recipe,
    schedule: Schedule,
    compute: Compute,
    described: Mapping[str, Any],
    *,
    stop: Callable[[], bool],
    on_step: Callable[[Point, int], None],
    on_estimate: Callable[[Estimate], None] | None,
) -> Taught:
    """Train an adapter, or resume training in the folder `out`. `described` states the origin of the examples in
    recipe.json.

    The adapter is written to the subfolder `adapter`, in peft's format and, if `write_gguf` supports the model, as
    `adapter.gguf` for llama.cpp. Raises the errors of `fit_adapter` and `open_with_lora`, and `InputError` if all
    examples are too long.
    """
    devices = open_devices()
    model, tokenizer = open_with_lora(model_folder, recipe, compute, schedule.seed, devices)
    coded = [example_of(it, tokenizer) for it in examples]
    short = [it for it in coded if it.tokens <= recipe.max_tokens]
    if not short:
        raise InputError(f"all {len(coded)} examples have more than {recipe.max_tokens} tokens (--max-tokens)")
    trained = {
        "recipe": asdict(recipe),
        "model": folder_hash(model_folder),
        "examples": digest([[it.prompt.tolist(), it.answer.tolist()] for it in short]),
    }
    curve = fit_adapter(
        model, short, out, schedule, trained, compute, devices,
        stop=stop, on_step=on_step, on_estimate=on_estimate,
    )  # fmt: skip
    losses: dict[str, tuple[float, float]] = {}
    if devices.first:
        try:
            write_gguf(out / ADAPTER, model_folder, out / ADAPTER / "adapter.gguf")
        except InputError as error:
            LOG.warning("%s; llama.cpp's own script may be able to convert this adapter", error)
        if len(curve) == schedule.steps(len(short)):
            losses = _held_out_losses(held_out, model, tokenizer, recipe)
        counts = {"examples": len(short), "tokens": sum(it.tokens for it in short)}
        measured = {"held_out_losses": losses, "too_long": len(coded) - len(short)}
        write_recipe(out, {**asdict(recipe), **described, **measured}, schedule, curve, **counts)
    return Taught(curve, sum(it.tokens for it in short), len(coded) - len(short), losses)


def example_of(example: RunExample, tokenizer: Any) -> Example:
    """Turn an example into tokens: the prompt in the model's chat template, the reply, and the token that ends a
    reply."""
    reply = tokenizer(example.reply, add_special_tokens=False)["input_ids"]
    answer = torch.tensor([*reply, tokenizer.eos_token_id])
    return Example(torch.tensor(chat_tokens(tokenizer, example.messages)), answer, torch.ones(len(answer)))


def _held_out_losses(
    held_out: Sequence[RunExample], model: Any, tokenizer: Any, recipe: Recipe
) -> dict[str, tuple[float, float]]:
    losses: dict[str, list[tuple[float, float]]] = defaultdict(list)
    model.eval()
    with torch.inference_mode():
        for one in held_out:
            example = example_of(one, tokenizer)
            if example.tokens <= recipe.max_tokens:
                with model.disable_adapter():
                    before = losses_of([example], model).item()
                losses[one.prompt].append((before, losses_of([example], model).item()))
    return {name: (fmean(a for a, _ in pairs), fmean(b for _, b in pairs)) for name, pairs in losses.items()}
