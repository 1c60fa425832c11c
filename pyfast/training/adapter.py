"""Train an adapter (LoRA) on prompts and replies. Only the tokens of the replies count in the loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pyfast.llm.transformers import open_model
from pyfast.training.devices import Devices, Estimate
from pyfast.training.loop import Batches, Point, Schedule, fit
from pyfast.training.lora import ALL_PROJECTIONS, Precision, completion_losses, learning, with_lora

ADAPTER = "adapter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """Options for how the training is computed. Apart from rounding and dropout, they do not change the
    trained weights. So you can resume a training with other values.
    """

    batch: int = 1
    """The maximum number of examples that go through the model together"""
    precision: Precision = "float32"
    checkpointing: bool = False
    """Whether to compute the outputs of the layers a second time for the gradient, and not to store them.
    This needs less memory and about a third more time"""


PLAIN = Compute()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraRecipe:
    """The size and the dropout of the low-rank updates."""

    lora_rank: int = 16
    lora_alpha: int = 32
    dropout: float = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """One training example: the tokens of a step's prompt, and the tokens of the correct action. Each token
    of the action has a weight in the loss."""

    prompt: torch.Tensor
    answer: torch.Tensor
    weights: torch.Tensor

    @property
    def tokens(self) -> int:
        """The number of tokens that the model reads: prompt and action, without the last token of the
        action."""
        return len(self.prompt) + len(self.answer) - 1


def open_with_lora(
    folder: Path, recipe: LoraRecipe, compute: Compute, seed: int, devices: Devices
) -> tuple[Any, Any]:
    """Open a model with new low-rank updates of all projections, on the device of this process. Returns (the
    model, its tokenizer). Raises the errors of `open_model` and `with_lora`."""
    torch.manual_seed(seed)
    model, tokenizer = open_model(folder, compute.precision)
    if compute.checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    sizes = {"rank": recipe.lora_rank, "alpha": recipe.lora_alpha}
    model = with_lora(model, **sizes, dropout=recipe.dropout, targets=ALL_PROJECTIONS)
    return model.train().to(devices.device), tokenizer


def fit_adapter(
    model: Any,
    examples: Sequence[Example],
    out: Path,
    schedule: Schedule,
    described: Mapping[str, Any],
    compute: Compute,
    devices: Devices,
    *,
    stop: Callable[[], bool],
    on_step: Callable[[Point, int], None],
    on_estimate: Callable[[Estimate], None] | None,
) -> list[Point]:
    """Train the updates of a model, or resume the training in the folder `out`. The folder `adapter` in it gets
    the updates in peft's format, which vLLM loads with the original model. Returns the learning curve, and raises
    the errors of `fit`.
    """
    curve = fit(
        examples, lambda batch: losses_of(batch, model).sum(), learning(model), out, schedule, described,
        stop=stop, on_step=on_step, batches=Batches(lambda it: it.tokens, compute.batch), devices=devices,
        on_estimate=on_estimate,
    )  # fmt: skip
    if devices.first:
        model.save_pretrained(out / ADAPTER)
    return curve


def losses_of(batch: Sequence[Example], model: Any) -> torch.Tensor:
    """Compute the weighted cross-entropy of each example. Only the tokens of the action count, not the tokens
    of the prompt (A.3.2 of HSEQ's paper).
    """
    table = model.get_input_embeddings().weight
    prompts = [torch.nn.functional.embedding(it.prompt.to(table.device), table) for it in batch]
    answers = [it.answer.to(table.device) for it in batch]
    return completion_losses(model, prompts, answers, [it.weights.to(table.device) for it in batch])
