"""GraphRank (equation 1 of N2N-GQA): boost the semantic score of a document by its structural score."""

from __future__ import annotations

import numpy.typing as npt

import pyfast._native as native
import pyfast.ops.gpu as gpu
from pyfast.ops.arrays import Float32, arguments, call
from pyfast.ops.backend import Backend, on_gpu


def graph_rank(
    semantic: npt.ArrayLike,
    structural: npt.ArrayLike,
    pool_offsets: npt.ArrayLike,
    alpha: float = 0.85,
    backend: Backend = "auto",
) -> Float32:
    """Compute GraphRank: the semantic score, boosted by the structural score (equation 1 of N2N-GQA).

    The score is sem * (1 + (1 - alpha) * struct). sem and struct are the semantic and structural scores, min-max
    normalised over their pool. If all scores of a pool are equal, they become 1.

    Args:
        semantic: float32[N], the retrieval scores.
        structural: float32[N], a centrality, such as the result of `weighted_degree`.
        pool_offsets: int64[P + 1], where each pool begins.
        alpha: A number in [0, 1]. The structural score has the weight 1 - alpha. With 1, the structural score
            does not count (the paper's ablation).
        backend: As in `evidence_graph`.

    Returns:
        float32[N], in [0, 2 - alpha].

    Raises:
        ArrayError: A score is not finite, or the offsets do not agree with the number of scores.
        DeviceError: The op should run on a GPU, but no GPU can be used.

    Example:
        >>> from pyfast import ops
        >>> ops.graph_rank([3, 2, 1], [2, 4, 2], [0, 3], alpha=0.5).tolist()
        [1.0, 0.75, 0.0]
    """
    if on_gpu(backend, semantic):
        return gpu.graph_rank(semantic, structural, pool_offsets, alpha)
    given = arguments(semantic=semantic, structural=structural, pool_offsets=pool_offsets)
    return call(native.graph_rank, **given, alpha=alpha)
