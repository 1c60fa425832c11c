"""Layers for torch models: `GATv2Conv`, as in torch_geometric, with `ops.gatv2`. Needs the extra `torch`."""

from __future__ import annotations

import math
from typing import Any, Literal, overload

try:
    import torch
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "pyfast.ops.nn needs torch: pip install 'pyfast-qa[torch]'", name=error.name, path=error.path
    ) from None

from pyfast.errors import ArrayError, InputError
from pyfast.ops.gatv2 import gatv2

__all__ = ["GATv2Conv"]


class GATv2Conv(torch.nn.Module):
    """The layer of Brody et al. 2022, with the arguments, weights and results of `torch_geometric.nn.GATv2Conv`.

    To use it in place of torch_geometric's layer (PyG), change the import. The same seed gives the same
    weights, and state dicts can be exchanged. `ops.gatv2` computes the attention. This op needs no array of
    edges x heads x channels elements, and its results do not depend on the number of threads. Edge features
    and the options of `MessagePassing` are not supported.

    Args:
        in_channels: The number of features of a node, or a pair of numbers for (sources, destinations). -1:
            the layer takes the number from the first input of `forward`.
        out_channels: The number of features of each head.
        heads: The number of attention heads.
        concat: Whether to concatenate the outputs of the heads. False: average them.
        negative_slope: The negative slope of LeakyReLU.
        dropout: The probability that the attention weight of an edge in a head is set to 0 during training.
        add_self_loops: Whether to add an edge from each source to the destination with the same number. These
            edges replace existing loops of the graph.
        edge_dim: Must be None, because edge features are not supported.
        fill_value: In PyG, the edge features of self-loops. It has no effect here.
        bias: Whether the projections and the output have a bias.
        share_weights: Whether sources and destinations have the same projection. False: each has its own.
        residual: Whether to add a projection of the destinations' features to the output.

    Raises:
        InputError: `edge_dim` is given.

    Example:
        >>> import torch
        >>> from pyfast.ops.nn import GATv2Conv
        >>> layer = GATv2Conv(16, 8, heads=2)
        >>> layer(torch.randn(3, 16), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([3, 16])
    """

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        negative_slope: float = 0.2,
        dropout: float = 0.0,
        add_self_loops: bool = True,
        edge_dim: int | None = None,
        fill_value: float | torch.Tensor | str = "mean",
        bias: bool = True,
        share_weights: bool = False,
        residual: bool = False,
    ) -> None:
        super().__init__()
        if edge_dim is not None:
            raise InputError(
                "edge_dim: edge features are not supported; torch_geometric.nn.GATv2Conv supports them"
            )
        self.in_channels, self.out_channels, self.heads, self.concat = in_channels, out_channels, heads, concat
        self.negative_slope, self.dropout, self.add_self_loops = negative_slope, dropout, add_self_loops
        self.edge_dim, self.fill_value = edge_dim, fill_value
        self.residual, self.share_weights = residual, share_weights
        of_source, of_destination = (in_channels, in_channels) if isinstance(in_channels, int) else in_channels
        total = out_channels * (heads if concat else 1)
        self.lin_l = _linear(of_source, heads * out_channels, bias)
        self.lin_r = self.lin_l if share_weights else _linear(of_destination, heads * out_channels, bias)
        self.att = torch.nn.Parameter(torch.empty(1, heads, out_channels))
        self.res = _linear(of_destination, total, False) if residual else None
        self.bias = torch.nn.Parameter(torch.empty(total)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights. The same seed gives the same weights as in PyG."""
        self.lin_l.reset_parameters()
        self.lin_r.reset_parameters()
        if self.res is not None:
            self.res.reset_parameters()
        _glorot(self.att)
        if self.bias is not None:
            torch.nn.init.zeros_(self.bias)

    @overload
    def forward(
        self,
        x: torch.Tensor | tuple[torch.Tensor, torch.Tensor],
        edge_index: torch.Tensor,
        edge_attr: None = None,
        return_attention_weights: Literal[False] | None = None,
    ) -> torch.Tensor: ...

    @overload
    def forward(
        self,
        x: torch.Tensor | tuple[torch.Tensor, torch.Tensor],
        edge_index: torch.Tensor,
        edge_attr: None = None,
        *,
        return_attention_weights: Literal[True],
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]: ...

    def forward(
        self,
        x: Any,
        edge_index: torch.Tensor,
        edge_attr: None = None,
        return_attention_weights: bool | None = None,
    ) -> Any:
        """Compute the new features of the destinations.

        Args:
            x: The features [N, in_channels], or a pair ([N_src, ...], [N_dst, ...]).
            edge_index: [2, E] integers: sources in the first row, destinations in the second. The layer sorts
                these edges at each call. You can also give a sparse CSR tensor, destinations x sources. The
                layer does not need to sort its entries, and ignores their values.
            edge_attr: Must be None, because edge features are not supported.
            return_attention_weights: Whether to also return the edges, including self-loops, with the
                attention weight of each edge in each head.

        Returns:
            The new features [N_dst, heads * out_channels], or [N_dst, out_channels] if heads are averaged. With
            `return_attention_weights`, a pair: the features, and (edges [2, E'], weights [E', heads]).

        Raises:
            ArrayError: The edges or features are malformed, edge features are given, or attention weights are
                requested for a sparse tensor.
        """
        if edge_attr is not None:
            raise ArrayError(
                "edge_attr: edge features are not supported; torch_geometric.nn.GATv2Conv supports them"
            )
        source, destination = (x, x) if isinstance(x, torch.Tensor) else x
        x_src = self.lin_l(source).view(-1, self.heads, self.out_channels)
        same = self.share_weights and destination is source
        x_dst = x_src if same else self.lin_r(destination).view(-1, self.heads, self.out_channels)
        indptr, indices, order = _by_destination(edge_index, x_dst.shape[0])
        with_attention = bool(return_attention_weights)
        dropout = self.dropout if self.training else 0.0
        settings: Any = {"self_loops": self.add_self_loops, "dropout": dropout, "return_attention": with_attention}
        out = gatv2(x_src, x_dst, indptr, indices, self.att[0], self.negative_slope, **settings)
        y = out[0] if with_attention else out
        y = y.flatten(1) if self.concat else y.mean(dim=1)
        if self.res is not None:
            y = y + self.res(destination)
        if self.bias is not None:
            y = y + self.bias
        if not with_attention:
            return y
        if order is None:
            raise ArrayError("return_attention_weights: expected edge_index as [2, E], got a sparse tensor")
        attention = out[1]
        weights = attention[torch.argsort(order)]
        if not self.add_self_loops:
            return y, (edge_index, weights)
        loops = torch.arange(min(x_src.shape[0], x_dst.shape[0]), device=edge_index.device)
        kept = edge_index[0] != edge_index[1]
        edges = torch.cat([edge_index[:, kept], loops.expand(2, -1)], dim=1)
        of_loops = attention[len(order) : len(order) + len(loops)]
        return y, (edges, torch.cat([weights[kept], of_loops]))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels}, heads={self.heads})"


def _by_destination(edge_index: Any, destinations: int) -> tuple[Any, Any, Any]:
    """Return the edges, sorted by destination: (indptr, sources, the position of each edge in `edge_index`).
    For a sparse tensor, which is already sorted, None takes the place of the positions.
    """
    if not isinstance(edge_index, torch.Tensor):
        raise ArrayError(f"edge_index: expected a torch.Tensor, got {type(edge_index).__name__}")
    if edge_index.layout == torch.sparse_csr:
        return edge_index.crow_indices(), edge_index.col_indices(), None
    if edge_index.layout != torch.strided or edge_index.dim() != 2 or edge_index.shape[0] != 2:
        shape = list(edge_index.shape)
        raise ArrayError(f"edge_index: expected [2, E] or a sparse CSR tensor, got {edge_index.layout}{shape}")
    if edge_index.dtype.is_floating_point or edge_index.dtype.is_complex:
        raise ArrayError(f"edge_index: expected integers, got {edge_index.dtype}")
    targets, order = torch.sort(edge_index[1], stable=True)
    if targets.device.type == "cpu" and len(targets) and not torch.compiler.is_compiling():
        for node in (int(targets[0]), int(targets[-1])):
            if not 0 <= node < destinations:
                raise ArrayError(
                    f"edge_index: there is no destination {node}; number of destinations: {destinations}"
                )
    nodes = torch.arange(destinations + 1, device=targets.device, dtype=targets.dtype)
    return torch.searchsorted(targets, nodes), edge_index[0][order], order


class _Linear(torch.nn.Linear):
    """A linear layer with weights drawn as in PyG."""

    def reset_parameters(self) -> None:
        _glorot(self.weight)
        if self.bias is not None:
            bound = 1.0 / math.sqrt(self.in_features)
            torch.nn.init.uniform_(self.bias, -bound, bound)


class _LazyLinear(torch.nn.LazyLinear, _Linear):
    """A linear layer that takes its input size from the first features that it gets."""

    cls_to_become = _Linear


def _linear(in_channels: int, out_channels: int, bias: bool) -> torch.nn.Linear:
    if in_channels == -1:
        return _LazyLinear(out_channels, bias)
    return _Linear(in_channels, out_channels, bias)


def _glorot(weight: torch.Tensor) -> None:
    bound = math.sqrt(6.0 / (weight.shape[-2] + weight.shape[-1]))
    torch.nn.init.uniform_(weight, -bound, bound)
