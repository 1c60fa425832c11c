"""GATv2 (Brody et al. 2022): attention over the edges of a graph, forward and backward."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import numpy as np
import numpy.typing as npt

import pyfast.ops.gatv2_cpu as gatv2_cpu
import pyfast.ops.gatv2_gpu as gatv2_gpu
from pyfast.ops.arrays import thread_count
from pyfast.ops.backend import Backend, Gpu, on_gpu
from pyfast.ops.gatv2_cpu import Gatv2Arguments

if TYPE_CHECKING:
    import torch

Array = npt.NDArray[Any]
Features = TypeVar("Features", npt.NDArray[Any], "torch.Tensor")


@overload
def gatv2(
    x_src: Features,
    x_dst: Features,
    indptr: npt.ArrayLike | torch.Tensor,
    indices: npt.ArrayLike | torch.Tensor,
    att: Features,
    negative_slope: float = 0.2,
    *,
    self_loops: bool = False,
    dropout: float = 0.0,
    seed: int | None = None,
    mask: Features | None = None,
    return_attention: Literal[False] = False,
    threads: int | None = None,
    backend: Backend = "auto",
) -> Features: ...


@overload
def gatv2(
    x_src: Features,
    x_dst: Features,
    indptr: npt.ArrayLike | torch.Tensor,
    indices: npt.ArrayLike | torch.Tensor,
    att: Features,
    negative_slope: float = 0.2,
    *,
    self_loops: bool = False,
    dropout: float = 0.0,
    seed: int | None = None,
    mask: Features | None = None,
    return_attention: Literal[True],
    threads: int | None = None,
    backend: Backend = "auto",
) -> tuple[Features, Features]: ...


@overload
def gatv2(
    x_src: Features,
    x_dst: Features,
    indptr: npt.ArrayLike | torch.Tensor,
    indices: npt.ArrayLike | torch.Tensor,
    att: Features,
    negative_slope: float = 0.2,
    *,
    self_loops: bool = False,
    dropout: float = 0.0,
    seed: int | None = None,
    mask: Features | None = None,
    return_attention: bool,
    threads: int | None = None,
    backend: Backend = "auto",
) -> Any: ...


def gatv2(
    x_src: Any,
    x_dst: Any,
    indptr: Any,
    indices: Any,
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
    """Apply GATv2 (Brody et al. 2022): compute new features for each destination node, as a mean of its source
    nodes weighted by attention.

    For destination i, its sources j and each of the H heads, as in `torch_geometric.nn.GATv2Conv`:

        e_ij = att . LeakyReLU(x_src_j + x_dst_i)    a_ij = exp(e_ij) / Σ_k exp(e_ik)    y_i = Σ_j a_ij x_src_j

    A destination without sources gets the new features 0. The op accepts NaN and infinities in the features,
    and computes the equations with them.

    The op accepts NumPy arrays (float32, float64) and torch tensors (float32, float64, bfloat16), and returns
    the same kind. Tensors are differentiable by x_src, x_dst and att. The op adds up bfloat16 numbers in
    float32, and returns float32 under autocast. `torch.compile` can compile it. On a GPU (float32 and
    bfloat16) the op returns tensors or CuPy arrays on that GPU.

    The op allocates no array of edges x heads x channels elements. Only derivatives of the attention
    need such an array, because torch's own operations compute them. There are no second derivatives of y.

    Args:
        x_src: [N_src, H, C], the projected features of the sources.
        x_dst: [N_dst, H, C], the projected features of the destinations. Pass `x_src` again if the weights are
            shared.
        indptr: int64[N_dst + 1]. Destination i has the edges indptr[i] to indptr[i + 1].
        indices: int32 or int64[E], the source of each edge.
        att: [H, C], the attention vector of each head.
        negative_slope: The negative slope of LeakyReLU.
        self_loops: Add an edge from each source to the destination with the same number. These edges replace
            the loops that the graph already has. The new loop of destination i is edge E + i.
        dropout: The probability that an attention a_ij becomes 0. All other a_ij are divided by 1 - dropout.
            The random numbers depend only on (`seed`, edge, head).
        seed: The seed of dropout. NumPy and CuPy arrays need one. With torch tensors, it can be None:
            torch's random generator then makes one.
        mask: bool[E, H], or with `self_loops` bool[E + N_dst, H]: True for each a_ij that dropout keeps. The
            mask is used in place of random numbers.
        return_attention: Also return the attention.
        threads: See `pyfast.ops`.
        backend: As in `evidence_graph`.

    Returns:
        y, [N_dst, H, C]. If `return_attention` is True: (y, attention [edges, H] after dropout). If
        `self_loops` is True, the attention is 0 for the loops that were replaced. It is also 0 for the new
        loop of a destination if no source has the same number.

    Raises:
        ArrayError: An array or a number is malformed.
        DeviceError: The op should run on a GPU, but no GPU can be used.

    Example:
        >>> import numpy as np
        >>> from pyfast import ops
        >>> sources = np.array([[[1.0]], [[3.0]]])  # two sources with one head and one channel
        >>> ops.gatv2(sources, np.zeros((1, 1, 1)), [0, 2], [0, 1], np.zeros((1, 1))).tolist()
        [[[2.0]]]
    """
    layer = x_src, x_dst, indptr, indices, att, negative_slope, bool(self_loops), dropout, seed, mask
    torch = sys.modules.get("torch")
    if torch is not None and any(isinstance(each, torch.Tensor) for each in (x_src, x_dst, att)):
        from pyfast.ops import gatv2_torch  # The caller has tensors, so torch is imported already.

        tensors = gatv2_torch.gatv2_torch(layer, threads, backend)
        return (tensors[0], gatv2_torch.applied(tensors[1], dropout)) if return_attention else tensors[0]
    there = on_gpu(backend, x_src)
    given = Gatv2Arguments(*layer, threads=thread_count(threads))
    y, attention = gatv2_gpu.gatv2_cupy(given) if there else gatv2_cpu.gatv2_numpy(given)
    if not return_attention:
        return y
    return y, gatv2_cpu.applied(Gpu(y).library if there else np, attention, y.shape[1], dropout)
