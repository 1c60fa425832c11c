"""gatv2 on a GPU, for CuPy arrays and torch tensors: the forward pass, and torch's backward pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyfast._native as native
from pyfast.errors import ArrayError
from pyfast.ops.backend import Gpu, call_gpu
from pyfast.ops.gatv2_cpu import Gatv2Arguments


def gatv2_cupy(given: Gatv2Arguments) -> tuple[Any, Any]:
    """Compute gatv2 of CuPy arrays. Returns (y, attention): the new features of the destinations, and the
    attention as `forward` returns it."""
    gpu = Gpu(given.x_src, given.x_dst, given.att)
    if given.lacks_seed:
        raise ArrayError("seed: dropout on arrays other than torch tensors needs a seed")
    with gpu.current():
        x_src, x_dst, att = (gpu.library.ascontiguousarray(each) for each in (given.x_src, given.x_dst, given.att))
        given = replace(given, x_src=x_src, x_dst=x_dst, att=att)
        given.heads_and_channels()
        narrow = str(getattr(given.indices, "dtype", "")).endswith("int32")
        indptr = gpu.array("indptr", given.indptr, "int64")
        indices = gpu.array("indices", given.indices, "int32" if narrow else "int64")
        y, attention = forward(gpu, replace(given, indptr=indptr, indices=indices))
        return y.reshape(x_dst.shape), attention


def forward(gpu: Gpu, layer: Gatv2Arguments) -> tuple[Any, Any]:
    """Return (y, attention): the new features of the destinations, and the attention of each edge and head as
    a flat array. A minus sign marks each attention that dropout dropped. The backward pass needs these
    signs."""
    heads, channels = layer.heads_and_channels()
    with gpu.current():
        kept, kind = _mask(gpu, layer.mask, (layer.edges, heads)), _kind(layer.x_src)
        y = gpu.empty(int(layer.x_dst.shape[0]) * heads * channels, kind)
        attention = gpu.empty(layer.edges * heads, "float32")
        given = {"is_bfloat16": kind == "bfloat16", "layer": _layer(layer), "settings": _settings(layer, kept)}
        gpu.run(native.cuda.gatv2, **given, y=y, attention=attention)
    return y, attention


def backward(
    gpu: Gpu, layer: Gatv2Arguments, attention: Any, grad: Any, wanted: tuple[bool, bool, bool]
) -> list[Any]:
    """Return the gradients by x_src, x_dst and att, as flat arrays. `wanted` says which of the three to
    compute, and the others are empty. `attention` is the flat array that `forward` returned. `grad` is the
    gradient by y.
    """
    kind = _kind(layer.x_src)
    features = layer.x_src, layer.x_dst, layer.att
    with gpu.current():
        sizes = [gpu.memory(each)[1] if want else 0 for each, want in zip(features, wanted, strict=True)]
        gradients = [gpu.empty(size, kind) for size in sizes]
        given: dict[str, Any] = {"is_bfloat16": kind == "bfloat16", "layer": gpu.places(_layer(layer))}
        given |= {"settings": _settings(layer, None), "gradients": gpu.places(tuple(gradients))}
        workspace = call_gpu(native.cuda.gatv2_backward_workspace, **given)
        gpu.run(native.cuda.gatv2_backward, workspace, **given, attention=attention, grad=grad)
    return gradients


def _kind(features: Any) -> str:
    kind = str(features.dtype).removeprefix("torch.")
    if kind not in ("float32", "bfloat16"):
        raise ArrayError(f"x_src: on a GPU, expected float32 or bfloat16, got {kind}")
    return kind


def _layer(layer: Gatv2Arguments) -> tuple[Any, ...]:
    """Return the arrays and sizes of the layer as a tuple, in the form that the native op needs."""
    wide = str(layer.indices.dtype).endswith("int64")
    graph = layer.indptr, layer.indices, wide
    return layer.x_src, layer.x_dst, *graph, layer.att, *layer.heads_and_channels()


def _settings(layer: Gatv2Arguments, kept: Any) -> tuple[float, bool, float, int, Any]:
    """Return the settings of the layer as a tuple, in the form that the native op needs. `kept` is the mask
    on the GPU."""
    return layer.negative_slope, layer.self_loops, layer.dropout, int(layer.seed or 0) % 2**64, kept


def _mask(gpu: Gpu, mask: Any, shape: tuple[int, int]) -> Any:
    if mask is None:
        return None
    if tuple(mask.shape) != shape or "float" in str(mask.dtype):
        raise ArrayError(f"mask: expected bool[{shape[0]}, {shape[1]}], got {mask.dtype}{list(mask.shape)}")
    return gpu.array("mask", (mask != 0).reshape(-1), "uint8")
