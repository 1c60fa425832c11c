"""maxsim: the late-interaction score of documents. Each token of a query or document has a vector."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

import pyfast._native as native
import pyfast.ops.gpu as gpu
from pyfast.errors import ArrayError
from pyfast.ops.arrays import Float32, arguments, array, call, readable
from pyfast.ops.backend import Backend, on_gpu


def maxsim(
    queries: npt.ArrayLike,
    query_offsets: npt.ArrayLike,
    tokens: npt.ArrayLike,
    token_offsets: npt.ArrayLike,
    pairs: npt.ArrayLike,
    scales: npt.ArrayLike | None = None,
    threads: int | None = None,
    backend: Backend = "auto",
    precision: Literal["float32", "bf16"] = "float32",
) -> Float32:
    """Compute the late-interaction score of each pair (query, document): a sum over the query's tokens. Each
    token adds its largest product with a token of the document.

    The score of query i and document j is Σ_q max_d ⟨q, d⟩ over the tokens q of i and d of j (ColBERT, equation
    3). The vectors of tokens are float32, or int8 with one scale for each token. With int8, the op first finds the
    best d with q rounded to 7 or 8 bits, and then computes ⟨q, d⟩ in float32 from q itself. The op chooses the
    instruction set (such as AVX-512) at run time, which changes no bit of the result.

    Args:
        queries: float32[Q, D], the vectors of all queries' tokens.
        query_offsets: int64[queries + 1], where each query begins.
        tokens: float32[T, D] or int8[T, D], the vectors of all documents' tokens. D is at most 65,536.
        token_offsets: int64[documents + 1], where each document begins.
        pairs: int64[N, 2], the numbers of a query and a document for each score. The op reads only the
            documents in these pairs.
        scales: float32[T], only with int8 tokens, at least 0. A vector is its scale times its int8 numbers.
        threads: See `pyfast.ops`.
        backend: As in `evidence_graph`.
        precision: With "bf16", a GPU rounds float32 vectors to bfloat16 and multiplies them on its tensor cores. A
            product ⟨q, d⟩ then differs by at most Σ|qᵢ·dᵢ|/127, which is less than 0.008 for vectors of length 1,
            and 0.0002 on average with 128 random dimensions. With "float32", the result has the same bits as on
            the CPU.

    Returns:
        float32[N], a score for each pair. -inf if the document has no tokens, 0 if the query has none.

    Raises:
        ArrayError: An array is malformed, or a number in use is not finite.
        DeviceError: The op should run on a GPU, but no GPU can be used.

    Example:
        >>> from pyfast import ops
        >>> queries, documents = [[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.25], [1.0, 0.0], [0.0, 1.0]]
        >>> ops.maxsim(queries, [0, 2], documents, [0, 1, 3], [[0, 0], [0, 1]]).tolist()
        [0.75, 2.0]
    """
    if on_gpu(backend, queries, tokens):
        return gpu.maxsim(queries, query_offsets, tokens, token_offsets, pairs, scales, precision)
    if precision != "float32":
        raise ArrayError(f"precision: {precision!r} needs arrays on a GPU; the CPU supports only 'float32'")
    asked, dimensions = _matrix("queries", queries, np.float32)
    vectors, width = _matrix("tokens", tokens, np.float32 if scales is None else np.int8)
    if width != dimensions:
        raise ArrayError(f"tokens: expected {dimensions} dimensions, like queries, got {width}")
    compared, two = _matrix("pairs", pairs, np.int64)
    if two != 2:
        raise ArrayError(f"pairs: expected [N, 2], a query and a document, got [N, {two}]")
    rows: dict[str, Any] = {"queries": asked, "tokens": vectors, "pairs": compared, "dimensions": dimensions}
    lists = arguments(query_offsets=query_offsets, token_offsets=token_offsets, threads=threads)
    return call(native.maxsim, **rows, **lists, **arguments(scales=() if scales is None else scales), level="best")


def _matrix(name: str, value: Any, dtype: type[np.generic]) -> tuple[npt.NDArray[Any], int]:
    """Return (the numbers of a matrix, row by row; its number of columns). A memory-mapped matrix of `dtype`
    is not copied."""
    given = readable(name, value)
    if given.ndim != 2:
        raise ArrayError(f"{name}: expected two dimensions, got shape {given.shape}")
    return array(name, np.ascontiguousarray(given).reshape(-1), dtype), int(given.shape[1])
