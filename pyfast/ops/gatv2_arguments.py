"""The arguments of gatv2 as a dataclass. The code for NumPy, torch and GPUs shares it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pyfast.errors import ArrayError


@dataclass(frozen=True, slots=True)
class Gatv2Arguments:
    """The arguments of one call of gatv2, as the user gave them or as arrays that the native op reads.

    The arrays belong to NumPy, CuPy or torch. The shapes use these letters: N_src sources, N_dst destinations, H
    heads, C channels, E stored edges.
    """

    x_src: Any
    """[N_src, H, C] float32, float64 or bfloat16 (in NumPy arrays, bfloat16 numbers are stored as uint16)"""
    x_dst: Any
    """[N_dst, H, C], with the dtype of `x_src`"""
    indptr: Any
    """int64[N_dst + 1]: destination i has the edges indptr[i] to indptr[i + 1]"""
    indices: Any
    """int32[E] or int64[E]: the source of each edge"""
    att: Any
    """[H, C], with the dtype of the features"""
    negative_slope: float = 0.2
    self_loops: bool = False
    dropout: float = 0.0
    """The probability that dropout drops an attention, in [0, 1)"""
    seed: int | None = None
    """The seed of the dropout"""
    mask: Any = None
    """bool[edges, H]: True where dropout keeps the attention. With a mask, the seed is not used"""
    threads: int = 1

    @property
    def edges(self) -> int:
        """The number of edges: E, or E + N_dst with self-loops."""
        return len(self.indices) + (max(len(self.indptr) - 1, 0) if self.self_loops else 0)

    @property
    def lacks_seed(self) -> bool:
        """Whether a seed is missing: there is dropout, but neither a seed nor a mask."""
        return bool(self.dropout) and self.seed is None and self.mask is None

    def mapped(self, use: Callable[[Any], Any]) -> Gatv2Arguments:
        """Return a copy of the arguments with `use(array)` in place of each array."""
        arrays = {name: use(getattr(self, name)) for name in ("x_src", "x_dst", "indptr", "indices", "att")}
        return replace(self, mask=None if self.mask is None else use(self.mask), **arrays)

    def heads_and_channels(self) -> tuple[int, int]:
        """Return (H, C). Raises `ArrayError` if the shapes or dtypes of the features do not agree."""
        att = self.att
        if len(att.shape) != 2 or 0 in att.shape:
            raise ArrayError(
                f"att: expected [heads, channels], at least one of each, got shape {tuple(att.shape)}"
            )
        heads, channels = (int(n) for n in att.shape)
        for name, x in (("x_src", self.x_src), ("x_dst", self.x_dst)):
            if len(x.shape) != 3 or tuple(x.shape[1:]) != (heads, channels):
                raise ArrayError(
                    f"{name}: expected [nodes, {heads}, {channels}], to match att; got shape {tuple(x.shape)}"
                )
            if x.dtype != att.dtype:
                raise ArrayError(f"{name}: is {x.dtype}, but att is {att.dtype}")
        return heads, channels
