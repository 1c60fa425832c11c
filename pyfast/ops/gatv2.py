"""GATv2 (Brody et al. 2022): attention over the edges of a graph, forward and backward."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from pyfast import _native
from pyfast.errors import ArrayError
from pyfast.ops.arrays import Int64, array, call, thread_count
from pyfast.ops.backend import Backend, Gpu, on_gpu

Array = npt.NDArray[Any]


def gatv2(
    x_src: Any,
    x_dst: Any,
    indptr: npt.ArrayLike,
    indices: npt.ArrayLike,
    att: Any,
    negative_slope: float = 0.2,
    *,
    self_loops: bool = False,
    dropout: float = 0.0,
    seed: int | None = None,
    mask: Any = None,
    return_attention: bool = False,
    threads: int | None = None,
    backend: Backend = "auto",
) -> Any:
    """[N_dst, H, C]: for each destination a mean of its sources, weighted by attention.

    For destination i, its sources j and each of the H heads, as `torch_geometric.nn.GATv2Conv` does it:

        e_ij = att . LeakyReLU(x_src_j + x_dst_i)    a_ij = exp(e_ij) / Σ_k exp(e_ik)    y_i = Σ_j a_ij x_src_j

    x_src [N_src, H, C] and x_dst [N_dst, H, C] are the projected features (one array for both where weights are
    shared), att is [H, C]; `indices[indptr[i]:indptr[i + 1]]` (int32 or int64; indptr int64[N_dst + 1]) are the
    sources of i, an edge for each time that one occurs. A destination without sources is 0. NaN and infinities
    go where the equations take them.

    - `self_loops`: each destination has one edge from the source of its own number, in place of those stored.
      Wants N_src == N_dst. Loop i is edge E + i.
    - `dropout`: each a_ij becomes 0 with this probability, or a_ij / (1 - dropout), by a generator that depends on
      (`seed`, edge, head) only; or where `mask` (bool[edges, H]; E edges, or with loops E + N_dst) is false.
      Without `seed` torch's generator gives one; NumPy arrays want it.
    - `return_attention`: (y, attention[edges, H]), with dropout applied, 0 for stored loops that were replaced.

    NumPy arrays (float32, float64) give NumPy arrays. Torch tensors (float32, float64, and bfloat16 with sums in
    float32) give tensors, differentiable once by x_src, x_dst and att; the attention is not. On a GPU (`backend`
    as in `evidence_graph`; float32 and bfloat16, up to 1,024 channels) tensors give tensors there, and CuPy's
    arrays CuPy's. Nothing of the size edges x heads x channels is ever made. Bitwise the same for any `threads`.
    Raises `ArrayError` on malformed input, `DeviceError` where there is no GPU to run on.
    """
    there = on_gpu(backend, x_src)
    settings = {"negative_slope": negative_slope, "self_loops": bool(self_loops), "dropout": dropout}
    y: Any
    attention: Any
    given = x_src, x_dst, (indptr, indices), att, settings, seed, mask
    torch = sys.modules.get("torch")
    if torch is not None and any(isinstance(each, torch.Tensor) for each in (x_src, x_dst, att)):
        from pyfast.ops.gatv2_torch import gatv2_torch  # a user of tensors has paid for importing torch

        y, attention = gatv2_torch(*given, thread_count(threads), there)
    elif there:
        from pyfast.ops.gatv2_gpu import gatv2_cupy

        y, attention = gatv2_cupy(*given, heads_and_channels)
    else:
        y, attention = _gatv2_numpy(*given, thread_count(threads))
    if not return_attention:
        return y
    if there:
        from pyfast.ops.gatv2_gpu import applied

        return y, applied(Gpu(y), attention, y.shape[1], dropout)
    weights = _applied(attention.reshape(-1, y.shape[1]), dropout)
    return y, weights if torch is None or isinstance(y, np.ndarray) else torch.from_numpy(weights)


def _gatv2_numpy(
    x_src: Any,
    x_dst: Any,
    csr: tuple[Any, Any],
    att: Any,
    settings: dict[str, Any],
    seed: int | None,
    mask: Any,
    threads: int,
) -> tuple[Array, Array]:
    arrays = []
    for name, value in (("x_src", x_src), ("x_dst", x_dst), ("att", att)):
        try:
            found = np.asarray(value) if not hasattr(value, "__dlpack__") else np.from_dlpack(value)
        except (TypeError, ValueError, RuntimeError, BufferError) as error:
            raise ArrayError(f"{name}: cannot be read as an array: {error}") from error
        if found.dtype not in (np.float32, np.float64):
            raise ArrayError(f"{name}: expected float32 (or float64), got {found.dtype}")
        arrays.append(np.ascontiguousarray(found))
    source, destination, attention = arrays
    shape = heads_and_channels(source, destination, attention)
    if settings["dropout"] and seed is None and mask is None:
        raise ArrayError("seed: dropout of NumPy arrays wants one")
    y, shares = forward(source, destination, graph(*csr), attention, shape, settings, seed or 0, mask, threads)
    return y.reshape(destination.shape), shares


def graph(indptr: npt.ArrayLike, indices: npt.ArrayLike) -> tuple[Int64, Array]:
    """The arrays of the graph as the core reads them: int64, and int32 or int64."""
    narrow = str(getattr(indices, "dtype", "")).endswith("int32")
    return array("indptr", indptr, np.int64), array("indices", indices, np.int32 if narrow else np.int64)


def heads_and_channels(x_src: Any, x_dst: Any, att: Any) -> tuple[int, int]:
    """H and C, where the shapes and dtypes fit each other."""
    if len(att.shape) != 2 or 0 in att.shape:
        raise ArrayError(f"att: expected [heads, channels], at least one of each, got shape {tuple(att.shape)}")
    heads, channels = (int(n) for n in att.shape)
    for name, x in (("x_src", x_src), ("x_dst", x_dst)):
        if len(x.shape) != 3 or tuple(x.shape[1:]) != (heads, channels):
            raise ArrayError(
                f"{name}: expected [nodes, {heads}, {channels}] as att has it, got shape {tuple(x.shape)}"
            )
        if x.dtype != att.dtype:
            raise ArrayError(f"{name}: is {x.dtype}, but att is {att.dtype}")
    return heads, channels


def forward(
    x_src: Array,
    x_dst: Array,
    csr: tuple[Int64, Array],
    att: Array,
    shape: tuple[int, int],
    settings: dict[str, Any],
    seed: int,
    mask: Any,
    threads: int,
) -> tuple[Array, Array]:
    """y and, for the backward pass, the attention: flat, negative where it is dropped."""
    if not isinstance(seed, int | np.integer):
        raise ArrayError(f"seed: expected an integer, got {seed!r}")
    edges = len(csr[1]) + (len(csr[0]) - 1 if settings["self_loops"] else 0)
    kept: Array = np.empty(0, np.uint8)
    if mask is not None:
        kept = np.asarray(mask)
        if kept.dtype.kind not in "biu" or kept.shape != (edges, shape[0]):
            raise ArrayError(f"mask: expected bool[{edges}, {shape[0]}], got {kept.dtype}{list(kept.shape)}")
        kept = np.ascontiguousarray(kept != 0).view(np.uint8).ravel()
    y, attention = call(
        _native.gatv2,
        *(x_src.reshape(-1), x_dst.reshape(-1), *csr, att.reshape(-1), *shape),
        *(settings["negative_slope"], settings["self_loops"], settings["dropout"]),
        *(int(seed) % 2**64, mask is not None, kept, threads),
    )
    return y, attention


def backward(
    x_src: Array,
    x_dst: Array,
    csr: tuple[Int64, Array],
    att: Array,
    shape: tuple[int, int],
    settings: dict[str, Any],
    attention: Array,
    grad: Array,
    wanted: tuple[bool, bool, bool],
    threads: int,
) -> tuple[Array, Array, Array]:
    """The gradients by x_src, x_dst and att, flat; empty where they are not wanted."""
    gradients: tuple[Array, Array, Array] = call(
        _native.gatv2_backward,
        *(x_src.reshape(-1), x_dst.reshape(-1), *csr, att.reshape(-1), *shape),
        *(settings["negative_slope"], settings["self_loops"], settings["dropout"]),
        *(attention, grad.reshape(-1), wanted, threads),
    )
    return gradients


def _applied(attention: Array, dropout: float) -> Array:
    """The attention as it weighs the sources, from that which notes by its sign what is dropped."""
    keep = np.where(np.signbit(attention), 0.0, 1.0 / (1.0 - dropout))
    weights: Array = np.abs(attention) * keep.astype(attention.dtype)
    return weights


def gatv2_reference(
    x_src: npt.ArrayLike,
    x_dst: npt.ArrayLike,
    indptr: npt.ArrayLike,
    indices: npt.ArrayLike,
    att: npt.ArrayLike,
    negative_slope: float = 0.2,
    *,
    self_loops: bool = False,
    dropout: float = 0.0,
    mask: npt.ArrayLike | None = None,
) -> tuple[Array, Array]:
    """y and the attention (with dropout applied) in float64, one destination after the other."""
    source, destination, a = (np.asarray(x, dtype=np.float64) for x in (x_src, x_dst, att))
    starts, sources = np.asarray(indptr), np.asarray(indices)
    stored, n = len(sources), len(destination)
    keep = np.ones((stored + (n if self_loops else 0), len(a)))
    if mask is not None:
        keep = np.asarray(mask) / (1.0 - dropout)
    y, attention = np.zeros_like(destination), np.zeros_like(keep)
    for i in range(n):
        edges = np.arange(starts[i], starts[i + 1])
        if self_loops:
            edges = np.append(edges[sources[edges] != i], stored + i)
            neighbours = source[np.append(sources[edges[:-1]], i)]
        else:
            neighbours = source[sources[edges]]
        if len(edges):
            summed = neighbours + destination[i]
            scores = (np.where(summed > 0, summed, negative_slope * summed) * a).sum(axis=2)
            shares = np.exp(scores - scores.max(axis=0))
            attention[edges] = keep[edges] * shares / shares.sum(axis=0)
            y[i] = (attention[edges][:, :, None] * neighbours).sum(axis=0)
    return y, attention
