"""Compute the embeddings that the LLM reads for a turn (graph_convqa, equation 6).

The LLM reads three parts in turn: the prompt before the graph (H_prefix), the graph (H_g), and the prompt
after the graph (H_suffix).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pyfast.errors import InputError
from pyfast.llm.local import folder_digest
from pyfast.systems.graph_convqa.encoder import GraphEncoder, load_encoder, token_table
from pyfast.systems.graph_convqa.entities import Linear
from pyfast.systems.graph_convqa.graph import History, TokenGraph, chains, frame, most_recent, parts, token_graph

MODEL = "model"
"""The folder of the trained LLM, inside the training's output folder"""


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """A graph encoder, with the tokenizer and token embeddings of its LLM."""

    tokenizer: Any
    table: torch.Tensor
    """[vocabulary, hidden] the LLM's token embeddings"""
    encoder: GraphEncoder


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """The input for a turn's prompt: its question, the conversation so far, and its evidence."""

    linear: Linear
    history: History
    question: str


@dataclass(frozen=True, slots=True, eq=False)
class Framed:
    """A prompt in three parts: the tokens before the graph, the graph, and the tokens after the graph."""

    prefix: tuple[int, ...]
    graph: TokenGraph
    suffix: tuple[int, ...]
    turns: int
    """How many earlier turns the prompt contains. They are the most recent turns"""


@lru_cache(maxsize=2)
def open_trained(folder: str, device: str = "cpu") -> Trained:
    """Open the folder that `pyfast train graph-convqa` wrote.

    Raises `InputError` if the folder contains no usable graph encoder, or if the encoder was trained with a
    different LLM than the one in the folder. Raises `ModelNotFoundError` if the folder contains no LLM.
    """
    from transformers import AutoTokenizer

    model = Path(folder) / MODEL
    encoder = load_encoder(Path(folder))
    table = token_table(model)
    if table.shape[1] != encoder.shape.hidden:
        raise InputError(
            f"{folder}: the encoder needs hidden size {encoder.shape.hidden}, but the model has {table.shape[1]}"
        )
    if encoder.shape.model not in ("", folder_digest(model)):
        raise InputError(f"{folder}: the encoder was trained with a different model from the one in {model}")
    tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True)
    return Trained(tokenizer, table.to(device), encoder.to(device))


def check_llm(folder: str, device: str, weights: str) -> None:
    """Raise `InputError` if the encoder in `folder` was trained with a different LLM than the one that answers.
    `weights` is the digest of the answering LLM. If it is empty, or the encoder stores no digest, nothing is
    compared.
    """
    own = open_trained(folder, device).encoder.shape.model
    if own and weights not in ("", own):
        raise InputError(
            f"trained={folder}: this encoder was trained with a different model from the one that answers now;"
            f" use {Path(folder) / MODEL} as the LLM"
        )


def framed(tokenizer: Any, turn: Turn, max_tokens: int, max_nodes: int) -> Framed:
    """Build the prompt of a turn, with at most `max_tokens` tokens and `max_nodes` graph nodes.

    The conversation gets at most half of the tokens: if it is longer, the oldest turns are left out. The
    evidence gets the rest: the lowest-ranked items that do not fit are left out.
    """

    def size(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False))

    history = most_recent(turn.history, turn.question, max_tokens // 2, size)
    prefix, suffix = frame(tokenizer, parts(history, turn.question))
    nodes = min(max_nodes, max_tokens - len(prefix) - len(suffix))
    graph = token_graph(chains(tokenizer, turn.linear), max(nodes, 0))
    return Framed(tuple(prefix), graph, tuple(suffix), len(history))


def embedded(framed: Framed, table: torch.Tensor, encoder: GraphEncoder) -> torch.Tensor:
    """Compute the embeddings of a whole prompt, [tokens, hidden]. In training, gradients flow from them to
    the encoder's weights."""
    prefix, nodes, suffix = (
        torch.nn.functional.embedding(torch.as_tensor(tokens, dtype=torch.int64, device=table.device), table)
        for tokens in (framed.prefix, framed.graph.tokens, framed.suffix)
    )
    return torch.cat([prefix, encoder(nodes, framed.graph), suffix])


def build_graph(turns: Sequence[Turn], folder: str, max_tokens: int, max_nodes: int) -> list[Framed]:
    """Build the prompts of many turns with the tokenizer of a trained model, each as `framed` does."""
    tokenizer = open_trained(folder).tokenizer
    return [framed(tokenizer, turn, max_tokens, max_nodes) for turn in turns]


def encode_graph(prompts: Sequence[Framed], folder: str, device: str = "cpu") -> list[npt.NDArray[np.float32]]:
    """Compute the embeddings of each prompt, [tokens, hidden].

    The prompts are computed one by one, so that an embedding does not depend on other prompts.
    """
    trained = open_trained(folder, device)
    with torch.inference_mode():
        return [embedded(prompt, trained.table, trained.encoder).cpu().numpy() for prompt in prompts]
