"""gatv2 on the CPU: the op for NumPy arrays, and the calls of the native ops `gatv2` and `gatv2_backward`.
The op for torch tensors on the CPU also uses these calls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

import pyfast._native as native
from pyfast.errors import ArrayError
from pyfast.ops.arrays import array, call, integers, readable
from pyfast.ops.gatv2_arguments import Gatv2Arguments

Array = npt.NDArray[Any]


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
        raise ArrayError("seed: required for dropout on NumPy arrays")
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


def applied(attention: Array, heads: int, dropout: float) -> Array:
    """Return the attention after dropout, [edges, heads]. `attention` is the flat array that `forward`
    returned."""
    keep = np.where(np.signbit(attention), 0.0, 1.0 / (1.0 - dropout))
    weights: Array = np.abs(attention) * keep.astype(attention.dtype)
    return weights.reshape(-1, heads)
