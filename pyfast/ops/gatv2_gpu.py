"""gatv2 on a GPU, of CuPy's or torch's arrays: forward, and what torch's derivative wants."""

from __future__ import annotations

from typing import Any

from pyfast import _native
from pyfast.errors import ArrayError
from pyfast.ops.backend import Gpu, call_gpu

Csr = tuple[Any, Any]


def graph(gpu: Gpu, indptr: Any, indices: Any) -> Csr:
    """The arrays of the graph on the device: int64, and int32 or int64."""
    narrow = str(getattr(indices, "dtype", "")).endswith("int32")
    return gpu.array("indptr", indptr, "int64"), gpu.array("indices", indices, "int32" if narrow else "int64")


def gatv2_cupy(
    x_src: Any,
    x_dst: Any,
    csr: Csr,
    att: Any,
    settings: dict[str, Any],
    seed: int | None,
    mask: Any,
    shape_of: Any,
) -> tuple[Any, Any]:
    """y and the attention of CuPy's arrays; `shape_of` gives heads and channels, or refuses them."""
    gpu = Gpu(x_src, x_dst, att)
    if settings["dropout"] and seed is None and mask is None:
        raise ArrayError("seed: dropout of arrays that are not torch's wants one")
    with gpu.current():
        arrays = [gpu.library.ascontiguousarray(each) for each in (x_src, x_dst, att)]
        shape = shape_of(*arrays)
        y, attention = forward(gpu, arrays, graph(gpu, *csr), shape, settings, seed or 0, mask)
        return y.reshape(arrays[1].shape), attention


def forward(
    gpu: Gpu,
    arrays: list[Any],
    csr: Csr,
    shape: tuple[int, int],
    settings: dict[str, Any],
    seed: int,
    mask: Any,
) -> tuple[Any, Any]:
    """y, as flat as the attention is: negative where it is dropped. `arrays`: x_src, x_dst and att, contiguous."""
    loops = max(len(csr[0]) - 1, 0) if settings["self_loops"] else 0
    edges = len(csr[1]) + loops
    with gpu.current():
        kept = _mask(gpu, mask, (edges, shape[0]))
        y = gpu.empty(int(arrays[1].shape[0]) * shape[0] * shape[1], _kind(arrays[0]))
        attention = gpu.zeros(edges * shape[0], "float32")
        with gpu.queue(0) as queue:
            call_gpu(
                *(_native.cuda.gatv2, _kind(arrays[0]) == "bfloat16", _layer(gpu, arrays, csr, shape)),
                *(_settings(gpu, settings, seed, kept), gpu.memory(y), gpu.memory(attention), queue),
            )
    return y, attention


def backward(
    gpu: Gpu,
    arrays: list[Any],
    csr: Csr,
    shape: tuple[int, int],
    settings: dict[str, Any],
    attention: Any,
    grad: Any,
    wanted: tuple[bool, bool, bool],
) -> list[Any]:
    """The gradients by x_src, x_dst and att, flat; empty where they are not wanted."""
    kind = _kind(arrays[0])
    with gpu.current():
        sizes = [gpu.memory(each)[1] if want else 0 for each, want in zip(arrays, wanted, strict=True)]
        gradients = [gpu.empty(size, kind) for size in sizes]
        places = tuple(gpu.memory(each) for each in gradients)
        given = kind == "bfloat16", _layer(gpu, arrays, csr, shape), _settings(gpu, settings, 0, None)
        with gpu.queue(call_gpu(_native.cuda.gatv2_backward_workspace, *given, places)) as queue:
            call_gpu(
                *(_native.cuda.gatv2_backward, *given, gpu.memory(attention), gpu.memory(grad), places, queue)
            )
    return gradients


def applied(gpu: Gpu, attention: Any, heads: int, dropout: float) -> Any:
    """The attention as it weighs the sources, [edges, heads]."""
    keep = (~gpu.library.signbit(attention)) / (1.0 - dropout)
    return (abs(attention) * gpu.cast("attention", keep, "float32")).reshape(-1, heads)


def _kind(features: Any) -> str:
    kind = str(features.dtype).removeprefix("torch.")
    if kind not in ("float32", "bfloat16"):
        raise ArrayError(f"x_src: a GPU has float32 and bfloat16, got {kind}")
    return kind


def _layer(gpu: Gpu, arrays: list[Any], csr: Csr, shape: tuple[int, int]) -> tuple[Any, ...]:
    x_src, x_dst, att = (gpu.memory(each) for each in arrays)
    wide = str(csr[1].dtype).endswith("int64")
    return x_src, x_dst, gpu.memory(csr[0]), gpu.memory(csr[1]), wide, att, *shape


def _settings(gpu: Gpu, settings: dict[str, Any], seed: int, kept: Any) -> tuple[Any, ...]:
    mask = None if kept is None else gpu.memory(kept)
    slope, loops, dropout = (settings[name] for name in ("negative_slope", "self_loops", "dropout"))
    return slope, loops, dropout, int(seed) % 2**64, mask


def _mask(gpu: Gpu, mask: Any, shape: tuple[int, int]) -> Any:
    if mask is None:
        return None
    if tuple(mask.shape) != shape or "float" in str(mask.dtype):
        raise ArrayError(f"mask: expected bool[{shape[0]}, {shape[1]}], got {mask.dtype}{list(mask.shape)}")
    return gpu.array("mask", (mask != 0).reshape(-1), "uint8")
