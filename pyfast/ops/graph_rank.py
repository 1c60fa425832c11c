"""GraphRank, equation 1 of N2N-GQA: semantic score, boosted by structural score."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pyfast import _native
from pyfast.ops.arrays import Float32, array, call
from pyfast.ops.backend import Backend, on_gpu


def graph_rank(
    semantic: npt.ArrayLike,
    structural: npt.ArrayLike,
    pool_offsets: npt.ArrayLike,
    alpha: float = 0.85,
    backend: Backend = "auto",
) -> Float32:
    """float32[N]: sem * (1 + (1 - alpha) * struct), both min-max normalised over their pool (all equal: 1).

    `alpha` in [0, 1]; 1 ignores structure (the paper's ablation). `backend` as in `evidence_graph`. Raises
    `ArrayError` for scores that are not finite, or offsets that do not fit them; `DeviceError` as that does.
    """
    if on_gpu(backend, semantic):
        from pyfast.ops import gpu

        on_device: Float32 = gpu.graph_rank(semantic, structural, pool_offsets, alpha)
        return on_device
    return call(
        _native.graph_rank,
        semantic=array("semantic", semantic, np.float32),
        structural=array("structural", structural, np.float32),
        pool_offsets=array("pool_offsets", pool_offsets, np.int64),
        alpha=alpha,
    )


def graph_rank_reference(
    semantic: npt.ArrayLike, structural: npt.ArrayLike, alpha: float = 0.85
) -> npt.NDArray[Any]:
    """The same for one pool, in float64."""

    def normalise(scores: npt.ArrayLike) -> npt.NDArray[Any]:
        s = np.asarray(scores, dtype=np.float64)
        return (s - s.min()) / np.ptp(s) if np.ptp(s) > 0 else np.ones_like(s)

    return normalise(semantic) * (1.0 + (1.0 - alpha) * normalise(structural))
