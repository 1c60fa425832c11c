"""Train HSEQ's iterator with LoRA (sections 4.1 and A.3 of its paper). A training example is one step of a
trajectory: a state, and the correct action in this state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from pyfast.llm.local import chat_tokens, digest, folder_hash
from pyfast.retrieval import Index
from pyfast.systems.hseq.system import Settings
from pyfast.systems.hseq.trajectories import Target, mixed, trajectories
from pyfast.systems.hseq.weak_positives import Gold, candidate_passages, weak_positives
from pyfast.training.loop import (
    Batches,
    Devices,
    Estimate,
    Point,
    Schedule,
    casting,
    estimated,
    open_devices,
    steps_of,
    write_recipe,
)
from pyfast.training.lora import (
    PLAIN,
    Compute,
    Example,
    LoraRecipe,
    fit_adapter,
    learning,
    losses_of,
    open_with_lora,
)

_SUFFICIENCY = '"sufficiency": '  # the text before s_t


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe(LoraRecipe):
    """The options for training HSEQ's iterator: what is trained, and on which data (A.3.4 and table 7 of
    HSEQ's paper). The `Schedule` sets the length of training."""

    settings: Settings
    """The settings of the system that will use the iterator, such as `window` and `k`"""
    max_positives: int = 4
    """The maximum number of positives per question (u in the paper)"""
    lexical_weight: float = 0.3
    """The loss weight of a positive that only shares words with the question. 0: such positives are not used"""
    verdict_weight: float = 1.0
    """The loss weight of the verdict's tokens (lambda in the paper). The verdict says whether the evidence is
    sufficient. All other tokens of an action have weight 1"""
    size: int = 512
    """The total number of examples from all sources. An example is one step of the iterator, and a source is
    an index with its questions"""
    weights: tuple[float, ...] = ()
    """The weight of each source (an index with its questions). The number of examples from a source is
    proportional to its weight. Empty: all weights are equal"""

    guidance: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The head's guidance for each question, if the setting `guidance` is `head`"""

    def as_json(self) -> dict[str, Any]:
        """The recipe as JSON values, without `guidance`."""
        fields = {name: value for name, value in asdict(self).items() if name != "guidance"}
        return {**fields, "settings": self.settings.model_dump(mode="json")}


Sources = Sequence[tuple[Index, Sequence[Gold]]]
"""Indexes, each with the questions and gold answers on which to train"""


def train(
    sources: Sources,
    model_folder: Path,
    out: Path,
    recipe: Recipe,
    schedule: Schedule,
    compute: Compute = PLAIN,
    *,
    stop: Callable[[], bool] = lambda: False,
    on_step: Callable[[Point, int], None] = lambda point, total: None,
    on_estimate: Callable[[Estimate], None] | None = None,
) -> list[Point]:
    """Train the iterator on the questions of each source (an index with its questions), or resume training in
    the folder `out`. Returns the learning curve.

    If `accelerate launch` started several processes, each process trains on its share of the examples, on its
    own device. The checkpoint, the learning curve, the folder `adapter` in peft's format, and `recipe.json`
    are written to the folder `out`. The examples always follow the order of `curriculum`; the schedule's `order`
    has no effect. Raises the same errors as `fit`, `open_model`, `with_lora` and `mixed`.
    """
    schedule = replace(schedule, order="given")
    devices = open_devices()
    model, examples = prepared(sources, model_folder, recipe, compute, schedule.seed, devices)
    described = {
        "recipe": recipe.as_json(),
        "model": folder_hash(model_folder),
        "examples": digest([[*map(torch.Tensor.tolist, (it.prompt, it.answer, it.weights))] for it in examples]),
    }
    curve = fit_adapter(
        model, examples, out, schedule, described, compute, devices,
        stop=stop, on_step=on_step, on_estimate=on_estimate,
    )  # fmt: skip
    if devices.first:
        write_recipe(out, recipe.as_json(), schedule, curve, examples=len(examples))
    return curve


def estimate(
    sources: Sources, model_folder: Path, recipe: Recipe, schedule: Schedule, compute: Compute = PLAIN
) -> Estimate:
    """Estimate, from two trial runs, how much time and memory `train` needs on this device. Raises the same errors
    as `open_model`, `with_lora` and `mixed`, and torch's out-of-memory error if the largest batch does not fit
    into memory.
    """
    schedule, devices = replace(schedule, order="given"), open_devices()
    model, examples = prepared(sources, model_folder, recipe, compute, schedule.seed, devices)
    batches: Batches[Example] = Batches(lambda it: it.tokens, compute.batch)
    steps = steps_of(examples, schedule, batches)
    parameters = learning(model)

    def loss(batch: Sequence[Example]) -> torch.Tensor:
        return losses_of(batch, model).sum()

    return estimated(steps, casting(loss, schedule, parameters), parameters, batches.size, devices)


def prepared(
    sources: Sources, model_folder: Path, recipe: Recipe, compute: Compute, seed: int, devices: Devices
) -> tuple[Any, list[Example]]:
    """Return the model and the training examples. The model has new low-rank updates, and is on this
    process's device.
    """
    model, tokenizer = open_with_lora(model_folder, recipe, compute, seed, devices)
    targets = [list(targets_of(index, golds, recipe)) for index, golds in sources]
    chosen = mixed(targets, recipe.weights, recipe.size, seed)
    examples = [example_of(target, tokenizer, recipe) for target in chosen]
    return model, examples


def targets_of(index: Index, golds: Sequence[Gold], recipe: Recipe) -> Iterable[Target]:
    """Make the targets for all questions of one index: each step of a question, with its correct action."""
    passages = candidate_passages(index, [gold.question for gold in golds], recipe.settings.prior)
    positives = [
        weak_positives(gold, passages_of_one, recipe.max_positives, recipe.lexical_weight)
        for gold, passages_of_one in zip(golds, passages, strict=True)
    ]
    return chain.from_iterable(trajectories(index, golds, positives, recipe.settings, recipe.guidance))


def example_of(target: Target, tokenizer: Any, recipe: Recipe) -> Example:
    """Tokenize a target: the prompt in the model's chat template, the action, and the token that ends a reply."""
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
