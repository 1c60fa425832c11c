"""HSEQ's iterator learns to pick: the steps of its trajectories, its action's tokens, LoRA (section 4.1, A.3)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from pyfast.llm.local import digest, folder_hash
from pyfast.llm.template import chat_tokens
from pyfast.retrieval import Index
from pyfast.systems.hseq.system import Settings
from pyfast.training.loop import Point, Schedule, fit
from pyfast.training.lora import ALL_PROJECTIONS, completion_loss, learning, open_model, save_adapter, with_lora
from pyfast.training.mixture import mixed
from pyfast.training.trajectories import Target, trajectories
from pyfast.training.weak_positives import Gold, candidate_passages, weak_positives

ADAPTER = "adapter"
_SUFFICIENCY = '"sufficiency": '  # what stands behind it is s_t


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What is learnt from (A.3.4, table 7); beside it the `Schedule` says how long."""

    settings: Settings
    """Of the system that the iterator is for: window, k, steps, guidance, characters"""
    max_positives: int = 4
    """u: positives of a question, at most"""
    lexical_weight: float = 0.3
    """Weight of a positive that only shares words with the question; 0 leaves them out"""
    verdict_weight: float = 1.0
    """lambda: weight of the tokens that say whether the evidence suffices; 1 is the plain next-token loss"""
    size: int = 512
    """Steps in the mixture"""
    weights: tuple[float, ...] = ()
    """Of the sources, in the mixture; none: all alike"""
    lora_rank: int = 16
    lora_alpha: int = 32
    dropout: float = 0.05

    def as_json(self) -> dict[str, Any]:
        """As JSON types."""
        return {**asdict(self), "settings": self.settings.model_dump(mode="json")}


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """One step: the prompt's tokens, the action's with their weights."""

    prompt: torch.Tensor
    answer: torch.Tensor
    weights: torch.Tensor


def train(
    sources: Sequence[tuple[Index, Sequence[Gold]]],
    model_folder: Path,
    out: Path,
    recipe: Recipe,
    schedule: Schedule,
    stop: Callable[[], bool] = lambda: False,
    on_step: Callable[[Point, int], None] = lambda point, total: None,
) -> list[Point]:
    """Learn from the questions of each source (an index, and questions with gold answers), or go on; the curve.

    `out` gets the checkpoint, the curve, `adapter` in peft's format and `recipe.json`. The examples come in the
    order of the curriculum, whatever the schedule's `order`. Raises as `fit` and `open_model` do.
    """
    schedule = replace(schedule, order="given")
    torch.manual_seed(schedule.seed)
    model, tokenizer = open_model(model_folder)
    targets = mixed(
        [list(targets_of(index, golds, recipe)) for index, golds in sources],
        recipe.weights,
        recipe.size,
        schedule.seed,
    )
    examples = [example_of(target, tokenizer, recipe) for target in targets]
    model = with_lora(
        model, rank=recipe.lora_rank, alpha=recipe.lora_alpha, dropout=recipe.dropout, targets=ALL_PROJECTIONS
    ).train()
    described = {
        "recipe": recipe.as_json(),
        "model": folder_hash(model_folder),
        "examples": digest([[*map(torch.Tensor.tolist, (it.prompt, it.answer, it.weights))] for it in examples]),
    }
    curve = fit(
        examples, lambda example: loss_of(example, model), learning(model), out, schedule, described,
        stop=stop, on_step=on_step,
    )  # fmt: skip
    save_adapter(model, out / ADAPTER)
    said = {
        "recipe": recipe.as_json(),
        "schedule": asdict(schedule),
        "steps": len(curve),
        "examples": len(examples),
    }
    (out / "recipe.json").write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    return curve


def targets_of(index: Index, golds: Sequence[Gold], recipe: Recipe) -> Iterable[Target]:
    """All steps that the questions of one source teach."""
    passages = candidate_passages(index, [gold.question for gold in golds], recipe.settings.prior)
    positives = [
        weak_positives(gold, found, recipe.max_positives, recipe.lexical_weight)
        for gold, found in zip(golds, passages, strict=True)
    ]
    for steps in trajectories(index, golds, positives, recipe.settings):
        yield from steps


def example_of(target: Target, tokenizer: Any, recipe: Recipe) -> Example:
    """A step as tokens: the prompt in the model's chat template, the action, the end of the turn."""
    prompt, fields = target.prompt(recipe.settings)
    asked = chat_tokens(tokenizer, prompt.request(fields, temperature=0.0, seed=0).messages)
    action = target.answer(recipe.settings)
    coded = tokenizer(action, add_special_tokens=False, return_offsets_mapping=True)
    verdict = action.rindex(_SUFFICIENCY) + len(_SUFFICIENCY)
    weights = [recipe.verdict_weight if end > verdict else 1.0 for _, end in coded["offset_mapping"]]
    return Example(
        torch.tensor(asked),
        torch.tensor([*coded["input_ids"], tokenizer.eos_token_id]),
        torch.tensor([*weights, 1.0]) * target.weight,
    )


def loss_of(example: Example, model: Any) -> torch.Tensor:
    """Cross-entropy of the action's tokens alone, each with its weight (A.3.2)."""
    prompt = torch.nn.functional.embedding(example.prompt, model.get_input_embeddings().weight)
    return completion_loss(model, prompt, example.answer, example.weights)
