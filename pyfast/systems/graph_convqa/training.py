"""Train graph_convqa end to end: the graph encoder from random weights, and the LLM with LoRA (sections 4.6
and 5, table 4 of its paper).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pyfast.engine import Question
from pyfast.errors import InputError
from pyfast.llm.local import chat, folder_digest, folder_hash
from pyfast.llm.transformers import open_model
from pyfast.retrieval import Index, ScoredSegments
from pyfast.retrieval.vectors.embeddings import DEFAULT
from pyfast.systems.graph_convqa.encoder import GraphEncoder, Shape, save_encoder
from pyfast.systems.graph_convqa.entities import linearise
from pyfast.systems.graph_convqa.evidence_items import find_evidence_items
from pyfast.systems.graph_convqa.evidence_memory import SHARE, Memory, MemoryQuery, apply_memory
from pyfast.systems.graph_convqa.graph import History, query_of, text_prompt
from pyfast.systems.graph_convqa.injection import MODEL, Framed, Turn, embedded, framed
from pyfast.training.loop import Point, Schedule, fit, open_devices, write_recipe
from pyfast.training.lora import completion_losses, learning, save_merged, with_lora
from pyfast.utils.log import LOG

_INERT: Mapping[str, tuple[str, object]] = {
    **dict.fromkeys(("layers", "heads", "dropout", "residual"), ("graph", False)),
    "memory_share": ("memory", "off"),
}
"""For each option: (another option, a value). If the other option has this value, the option has no effect"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The options for training graph_convqa: what is trained, and on which data. The `Schedule` sets the length of
    training.

    `passages`, `k`, `memory`, `memory_share` and `embedder` mean the same as in the system's settings.
    `layers`, `heads` and `residual` mean the same as in the encoder's `Shape`.
    """

    graph: bool = True
    """Whether to train with the graph. False: the prompt contains the evidence as text, and there is no encoder"""
    passages: int = 50
    k: int = 20
    memory: Memory = "on"
    memory_share: float = SHARE
    embedder: str = DEFAULT
    max_prompt_tokens: int = 1024
    """The maximum number of tokens in a prompt"""
    layers: int = 2
    heads: int = 2
    dropout: float = 0.5
    """The dropout of the encoder's attention"""
    residual: bool = True
    lora_rank: int = 128
    lora_alpha: int = 32

    def __post_init__(self) -> None:
        """Raise `InputError` if an option with a non-default value has no effect because of another option's
        value."""
        for one in fields(self):
            where, value = _INERT.get(one.name, ("", None))
            if where and getattr(self, where) == value and getattr(self, one.name) != one.default:
                raise InputError(f"{one.name} has no effect with {where}={value}: leave it out")


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """One training example: a turn's prompt (with the graph, or as text), and the tokens of the gold answer.

    The last token of the answer is the one that ends a reply of the LLM.
    """

    prompt: Framed | tuple[int, ...]
    answer: tuple[int, ...]
    dropped: int = 0
    """The number of evidence items that did not fit into the prompt"""


def train(
    index: Index,
    turns: Sequence[Question],
    model_folder: Path,
    out: Path,
    recipe: Recipe,
    schedule: Schedule,
    stop: Callable[[], bool] = lambda: False,
    on_step: Callable[[Point, int], None] = lambda point, total: None,
) -> list[Point]:
    """Train the graph encoder and the LLM on the gold answers of conversations, or resume training in the
    folder `out`. Returns the learning curve.

    The checkpoint and the learning curve are written to the folder `out`. When training ends or `stop` stops
    it, `model` (the LLM with merged updates) and `recipe.json` are added and, if the recipe has `graph`, the
    encoder (`encoder.safetensors` and `encoder.json`). Raises the same errors as `fit`, `open_model`
    and `with_lora`, and `InputError` if several processes train together.
    """
    devices = open_devices()
    if devices.count > 1:
        raise InputError("graph_convqa can be trained only in a single process")
    torch.manual_seed(schedule.seed)
    model, tokenizer = open_model(model_folder)
    examples = make_examples(index, turns, tokenizer, recipe)
    _tell_of_dropped(examples, recipe)
    shape = Shape(model.config.hidden_size, recipe.layers, recipe.heads, recipe.dropout, recipe.residual)
    encoder = GraphEncoder(shape).to(devices.device)
    model = with_lora(model, rank=recipe.lora_rank, alpha=recipe.lora_alpha).train().to(devices.device)
    parameters = learning(model)
    if recipe.graph:
        parameters |= {f"encoder.{name}": weight for name, weight in encoder.train().named_parameters()}
    described = {"recipe": asdict(recipe), "model": folder_hash(model_folder), "examples": _digest(examples)}
    curve = fit(
        examples,
        lambda batch: torch.stack([loss_of(example, model, encoder) for example in batch]).sum(),
        parameters,
        out,
        schedule,
        described,
        stop=stop,
        on_step=on_step,
    )
    save_merged(model, tokenizer, out / MODEL)
    if recipe.graph:
        save_encoder(encoder, out, folder_digest(out / MODEL))
    write_recipe(out, asdict(recipe), schedule, curve, turns=len(turns))
    return curve


def _tell_of_dropped(examples: Sequence[Example], recipe: Recipe) -> None:
    if short := sum(example.dropped > 0 for example in examples):
        dropped = sum(example.dropped for example in examples)
        LOG.warning(
            "the evidence of %d of %d turns does not fit into %d tokens; evidence items left out: %d",
            short,
            len(examples),
            recipe.max_prompt_tokens,
            dropped,
        )


def _digest(examples: Sequence[Example]) -> str:
    """Return a digest of all examples: of the numbers in their arrays, and of the arrays' lengths."""
    made = blake2b(digest_size=16)
    for example in examples:
        prompt = example.prompt
        parts: list[Any] = [example.answer]
        if isinstance(prompt, Framed):
            graph = prompt.graph
            parts += [prompt.prefix, graph.tokens, graph.indptr, graph.indices, prompt.suffix]
        else:
            parts.append(prompt)
        for part in parts:
            numbers = np.asarray(part, np.int64)
            made.update(len(numbers).to_bytes(8))
            made.update(numbers.tobytes())
    return made.hexdigest()


def completion_loss(
    model: Any, prompt: torch.Tensor, completion: torch.Tensor, weights: torch.Tensor | None = None
) -> torch.Tensor:
    """Compute the mean cross-entropy of a completion's tokens (int64[c]) after a prompt of embeddings [p, hidden].

    Prompt tokens do not count (graph_convqa, equation 8), and their logits are not computed. With
    `weights` (float32[c]), the result is the sum of the weighted losses, divided by c.
    """
    every = torch.ones(len(completion), device=prompt.device) if weights is None else weights
    return completion_losses(model, [prompt], [completion], [every])[0]


def loss_of(example: Example, model: Any, encoder: GraphEncoder) -> torch.Tensor:
    """Compute the cross-entropy of the answer's tokens (equation 8 of graph_convqa's paper). Prompt tokens do
    not count."""
    table = model.get_input_embeddings().weight
    if isinstance(example.prompt, Framed):
        prompt = embedded(example.prompt, table, encoder)
    else:
        prompt = torch.nn.functional.embedding(torch.tensor(example.prompt, device=table.device), table)
    return completion_loss(model, prompt, torch.tensor(example.answer, device=table.device))


def make_examples(index: Index, turns: Sequence[Question], tokenizer: Any, recipe: Recipe) -> list[Example]:
    """Make an example for each turn with a gold answer. Its prompt is the one that the system would send,
    with gold answers as the answers of earlier turns.
    """
    prepared = list(_prepared(turns))
    queries = [query_of(history, turn.text) for turn, history in prepared]
    items = find_evidence_items(index, queries, recipe.passages, recipe.k)
    evidence = _with_memory(index, prepared, items, recipe)
    return [
        _example(tokenizer, Turn(lines, history, turn.text), turn.answers[0], recipe)
        for (turn, history), lines in zip(prepared, linearise(index, evidence), strict=True)
        if turn.answers
    ]


def _prepared(turns: Sequence[Question]) -> Iterator[tuple[Question, History]]:
    for _, conversation in groupby(turns, key=lambda turn: turn.conversation or turn.id):
        history: History = ()
        for turn in conversation:
            yield turn, history
            history = (*history, (turn.text, turn.answers[0] if turn.answers else ""))


def _with_memory(
    index: Index, prepared: Sequence[tuple[Question, History]], pools: Sequence[ScoredSegments], recipe: Recipe
) -> list[ScoredSegments]:
    """Return the evidence of each turn. `pools` contains the evidence that a search found for each turn.
    Unless memory is off, `apply_memory` replaces a part of this evidence with evidence from earlier turns.

    `apply_memory` runs once for all second turns, once for all third turns, and so on.
    """
    evidence = list(pools)
    if recipe.memory == "off":
        return evidence
    for depth in range(1, max((len(history) for _, history in prepared), default=0) + 1):
        turns = [(at, turn, history) for at, (turn, history) in enumerate(prepared) if len(history) == depth]
        recalls = [
            MemoryQuery(query_of(history, turn.text), evidence[at], tuple(evidence[at - depth : at]), turn.id)
            for at, turn, history in turns
        ]
        recalled = apply_memory(index, recalls, recipe.memory, recipe.embedder, recipe.memory_share)
        for (at, _, _), found in zip(turns, recalled, strict=True):
            evidence[at] = found
    return evidence


def _example(tokenizer: Any, turn: Turn, gold: str, recipe: Recipe) -> Example:
    """Make an example. The prompt is cut as the system cuts it for an LLM with a context window of
    `max_prompt_tokens` tokens."""
    most, items = recipe.max_prompt_tokens, len(turn.linear.lines)
    answer = (*tokenizer.encode(gold, add_special_tokens=False), tokenizer.eos_token_id)
    if recipe.graph:
        with_graph = framed(tokenizer, turn, most, most)
        return Example(with_graph, answer, items - with_graph.graph.items)
    as_text = text_prompt(turn.history, turn.question, turn.linear.lines, most)
    tokens = tokenizer.encode(chat(tokenizer, as_text.messages), add_special_tokens=False)
    return Example(tuple(tokens), answer, items - as_text.items)
