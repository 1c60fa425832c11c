"""gatv2 on the CPU: the op for NumPy arrays, and the calls of the native ops `gatv2` and `gatv2_backward`, which
the op for torch tensors uses too. The arguments are a dataclass that the code for NumPy, torch and GPUs shares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

import pyfast._native as native
from pyfast.errors import ArrayError
from pyfast.ops.arrays import array, call, integers, readable

Array = npt.NDArray[Any]


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


def gatv2_numpy(given: Gatv2Arguments) -> tuple[Array, Array]:
    """Compute gatv2 of NumPy arrays. Returns (y, attention): the new features of the destinations, and the
    attention as `forward` returns it."""
    features: dict[str, Any] = {name: readable(name, getattr(given, name)) for name in ("x_src", "x_dst", "att")}
    for name, value in features.items():
        if value.dtype not in (np.float32, np.float64):
            raise ArrayError(f"{name}: expected float32 (or float64), got {value.dtype}")
        features[name] = np.ascontiguousarray(value)
    given = replace(given, **features)
    given.heads_and_channels()
    if given.lacks_seed:
        raise ArrayError("seed: dropout on NumPy arrays needs a seed")
    indptr, indices = array("indptr", given.indptr, np.int64), integers("indices", given.indices)
    y, attention = forward(replace(given, indptr=indptr, indices=indices))
    return y.reshape(given.x_dst.shape), attention


def forward(layer: Gatv2Arguments) -> tuple[Array, Array]:
    """Return (y, attention): the new features of the destinations, and the attention of each edge and head as
    a flat array. A minus sign marks each attention that dropout dropped. The backward pass needs these
    signs."""
    heads, _ = layer.heads_and_channels()
    seed = layer.seed or 0
    if not isinstance(seed, int | np.integer):
        raise ArrayError(f"seed: expected an integer, got {seed!r}")
    mask: Array = np.empty(0, np.uint8)
    if layer.mask is not None:
        mask = np.asarray(layer.mask)
        if mask.dtype.kind not in "biu" or mask.shape != (layer.edges, heads):
            raise ArrayError(f"mask: expected bool[{layer.edges}, {heads}], got {mask.dtype}{list(mask.shape)}")
        mask = np.ascontiguousarray(mask != 0).view(np.uint8).ravel()
    drawn: dict[str, Any] = {"seed": int(seed) % 2**64, "masked": layer.mask is not None, "mask": mask}
    return call(native.gatv2, **_given(layer), **drawn)


def backward(
    layer: Gatv2Arguments, attention: Array, grad: Array, wanted: tuple[bool, bool, bool]
) -> tuple[Array, Array, Array]:
    """Return the gradients by x_src, x_dst and att, as flat arrays. `wanted` says which of the three to
    compute, and the others are empty. `attention` is the flat array that `forward` returned. `grad` is the
    gradient by y.
    """
    flow: dict[str, Any] = {"attention": attention, "grad": grad.reshape(-1), "wanted": wanted}
    return call(native.gatv2_backward, **_given(layer), **flow)


def _given(layer: Gatv2Arguments) -> dict[str, Any]:
    """Return the arguments that the native op and its derivative share."""
    heads, channels = layer.heads_and_channels()
    flat = {name: getattr(layer, name).reshape(-1) for name in ("x_src", "x_dst", "att")}
    as_they_are = ("indptr", "indices", "negative_slope", "self_loops", "dropout", "threads")
    return flat | {name: getattr(layer, name) for name in as_they_are} | {"heads": heads, "channels": channels}


def applied(library: Any, attention: Any, heads: int, dropout: float) -> Any:
    """Return the attention after dropout, [edges, heads]. `attention` is the flat array of NumPy or CuPy (the
    `library`) that `forward` returned."""
    keep = ~library.signbit(attention) / (1.0 - dropout)
    return (abs(attention) * keep.astype(attention.dtype)).reshape(-1, heads)
