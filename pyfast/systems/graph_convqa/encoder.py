"""The graph encoder: GATv2 layers over the LLM's token embeddings (graph_convqa, section 4.4). This module
imports torch."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from pyfast.errors import InputError, ModelNotFoundError, of_another_build
from pyfast.ops.gatv2 import gatv2
from pyfast.systems.graph_convqa.graph import TokenGraph

WEIGHTS, SHAPE = "encoder.safetensors", "encoder.json"
FORMAT = 1
"""The version number of the encoder's format"""
_TABLES = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight")


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of an encoder and its options (graph_convqa's paper, table 4)."""

    hidden: int
    """The LLM's hidden size: the size of the token embeddings that the encoder reads and writes"""
    layers: int = 2
    heads: int = 2
    dropout: float = 0.5
    """The dropout of attention during training"""
    residual: bool = True
    """Whether the encoder's output is added to the token embeddings. False: it replaces them, as in the paper"""
    model: str = ""
    """A digest of the LLM with which the encoder was trained. Empty if unknown"""


class GraphEncoder(torch.nn.Module):
    """The neural network that computes new embeddings for the nodes of a graph, [nodes, hidden], from the
    nodes' token embeddings, [nodes, hidden], and the graph's edges.

    The weights have the layout of PyTorch Geometric's `GATv2Conv` with self-loops. The outputs of the
    attention heads are concatenated, and each layer is followed by an ELU (σ in equation 5 of the paper).
    `ops.gatv2` computes the attention.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        if shape.layers < 1 or shape.heads < 1 or not 0 <= shape.dropout < 1:
            raise InputError(
                f"an encoder cannot have layers={shape.layers}, heads={shape.heads}, dropout={shape.dropout}"
            )
        if shape.hidden % shape.heads:
            raise InputError(
                f"the model's hidden size, {shape.hidden}, is not a multiple of the number of heads, {shape.heads}"
            )
        self.shape = shape
        self.layers = torch.nn.ModuleList(_Layer(shape) for _ in range(shape.layers))
        # A small gate: training starts near the text that the LLM can read. With 0, no gradient would flow.
        self.gate = torch.nn.Parameter(torch.tensor(0.1)) if shape.residual else None

    def forward(self, x: torch.Tensor, graph: TokenGraph) -> torch.Tensor:
        if not len(x):
            return x
        y = x
        for layer in self.layers:
            y = torch.nn.functional.elu(layer(y, graph))
        return y if self.gate is None else x + self.gate * y


class _Layer(torch.nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.size = shape.heads, shape.hidden // shape.heads
        self.dropout = shape.dropout
        self.source = torch.nn.Linear(shape.hidden, shape.hidden)
        self.destination = torch.nn.Linear(shape.hidden, shape.hidden)
        self.attention = torch.nn.Parameter(torch.empty(self.size))
        self.bias = torch.nn.Parameter(torch.zeros(shape.hidden))
        for weight in (self.source.weight, self.destination.weight, self.attention):
            torch.nn.init.xavier_uniform_(weight)
        for bias in (self.source.bias, self.destination.bias):
            torch.nn.init.zeros_(bias)

    def forward(self, x: torch.Tensor, graph: TokenGraph) -> torch.Tensor:
        nodes = len(x), *self.size
        y: torch.Tensor = gatv2(
            self.source(x).view(nodes),
            self.destination(x).view(nodes),
            graph.indptr,
            graph.indices,
            self.attention,
            self_loops=True,
            dropout=self.dropout if self.training else 0.0,
        )
        return y.flatten(1) + self.bias


def save_encoder(encoder: GraphEncoder, folder: Path, model: str = "") -> None:
    """Write the weights of an encoder (safetensors), and its format and shape (JSON). `model` is a digest of the
    LLM's weights."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in encoder.state_dict().items()}, folder / WEIGHTS)
    described = {"format_version": FORMAT, **asdict(encoder.shape), "model": model}
    (folder / SHAPE).write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")


def load_encoder(folder: Path) -> GraphEncoder:
    """Load an encoder written by `save_encoder`.

    Raises `InputError` if a file is missing or damaged, and `OtherBuildError` if the encoder has a different
    format.
    """
    for name in (SHAPE, WEIGHTS):
        if not (folder / name).is_file():
            raise InputError(f"{folder} contains no trained graph encoder (the file {name} is missing)")
    try:
        described = dict(json.loads((folder / SHAPE).read_text(encoding="utf-8")))
        if (found := described.pop("format_version", None)) != FORMAT:
            raise of_another_build(folder, found, FORMAT, "build it again with `pyfast train graph-convqa`")
        encoder = GraphEncoder(Shape(**described))
        encoder.load_state_dict(load_file(folder / WEIGHTS))
    except (OSError, ValueError, TypeError, RuntimeError, SafetensorError) as error:
        raise InputError(f"{folder}: the graph encoder is damaged: {' '.join(str(error).split())}") from None
    return encoder.eval()


def token_table(folder: Path) -> torch.Tensor:
    """Read the token embeddings from a model folder, float32 [vocabulary, hidden]. Raises
    `ModelNotFoundError` if there are none.
    """
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 (it is no mapping)
                if name.endswith(_TABLES):
                    return torch.as_tensor(file.get_tensor(name), dtype=torch.float32)
    raise ModelNotFoundError(f"{folder} contains no safetensors file with token embeddings")
