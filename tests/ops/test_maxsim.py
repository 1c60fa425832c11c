"""maxsim against its reference and torch, on each level of instructions, alone and together; malformed input."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pool_problems import Array, ends
from references import maxsim_reference

from pyfast import _native, ops
from pyfast.errors import ArrayError

LEVELS = ["portable", "avx2", "avx512", "avx512_vnni"]
BEST = _native.maxsim_level()
SIZES = st.lists(st.integers(0, 40), min_size=1, max_size=4)


def vectors(sizes: list[int], dimensions: int, seed: int) -> tuple[list[Array], Array]:
    """(matrices of those numbers of tokens, where each begins among all)."""
    random = np.random.default_rng(seed)
    drawn = [random.standard_normal((n, dimensions)).astype(np.float32) for n in sizes]
    return [each / np.linalg.norm(each, axis=1, keepdims=True) for each in drawn], ends(drawn)


def codes_of(tokens: Array) -> tuple[Array, Array]:
    scales = np.abs(tokens).max(axis=1, initial=1e-9) / 127
    return np.rint(tokens / scales[:, None]).astype(np.int8), scales.astype(np.float32)


def every_pair(queries: list[Array], documents: list[Array]) -> Array:
    return np.array([(q, d) for q in range(len(queries)) for d in range(len(documents))], np.int64).reshape(-1, 2)


@given(SIZES, SIZES, st.sampled_from([1, 3, 4, 31, 33, 96, 130]), st.integers(0, 9), st.booleans())
def test_reference(asked: list[int], read: list[int], dimensions: int, seed: int, coded: bool) -> None:
    queries, query_offsets = vectors(asked, dimensions, seed)
    documents, token_offsets = vectors(read, dimensions, seed + 100)
    tokens, scales = np.concatenate(documents), None
    if coded:
        tokens, scales = codes_of(tokens)
        documents = np.split(tokens * scales[:, None], token_offsets[1:-1])
    pairs = every_pair(queries, documents)
    found = ops.maxsim(np.concatenate(queries), query_offsets, tokens, token_offsets, pairs, scales, threads=2)
    assert found.dtype == np.float32
    expected = [maxsim_reference(queries[q], documents[d]) for q, d in pairs]
    # Another token may be chosen where two products are as close as 8 bits are.
    loss = sum(map(len, queries)) * 0.02 if coded else 0.0
    assert (found <= np.array(expected) + 1e-5).all() and (found >= np.array(expected) - 1e-5 - loss).all()
    for at, pair in enumerate(pairs):  # alone
        one = ops.maxsim(np.concatenate(queries), query_offsets, tokens, token_offsets, [pair], scales, threads=1)
        assert one.tobytes() == found[at : at + 1].tobytes()


QUERIES, QUERY_OFFSETS = vectors([17, 0, 33, 5], 100, 1)
DOCUMENTS, TOKEN_OFFSETS = vectors([90, 12, 0, 1, 37], 100, 2)
CODES, SCALES = codes_of(np.concatenate(DOCUMENTS))
PAIRS = every_pair(QUERIES, DOCUMENTS)


def native(level: str, pairs: Array = PAIRS) -> Array:
    return _native.maxsim(
        queries=np.concatenate(QUERIES).ravel(),
        query_offsets=QUERY_OFFSETS,
        tokens=CODES.ravel(),
        scales=SCALES,
        token_offsets=TOKEN_OFFSETS,
        pairs=pairs.ravel(),
        dimensions=100,
        threads=1,
        level=level,
    )


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_has_the_same_bits(level: str) -> None:
    if LEVELS.index(level) > LEVELS.index(BEST):
        with pytest.raises(_native.Error, match="this processor"):
            native(level)
        pytest.skip(f"the processor has {BEST} at most")
    assert native(level).tobytes() == native("best").tobytes()
    assert native(level, PAIRS[::-1].copy())[::-1].tobytes() == native("best").tobytes()


@pytest.mark.parametrize("level", LEVELS[: LEVELS.index(BEST) + 1])
@pytest.mark.parametrize("pair", [(1.0, 1.0), (1.0, -1.0), (1.0, 0.0), (1.0, 0.98), (-1.0, -0.5)])
@pytest.mark.parametrize("sign", [1, -1])
def test_extreme_codes_do_not_overflow(level: str, pair: tuple[float, float], sign: int) -> None:
    """Every code at its limit: with a sum cut off at 16 bits, the first two tokens would look equal."""
    query = np.tile(np.array(pair, np.float32) * sign, 512)
    query[:2] = -0.0
    largest = np.where(query < 0, -127, 127)
    codes = np.array([largest - np.sign(largest), largest, -largest, np.full(1024, -128)], np.int8)
    for order in ([0, 1, 2, 3], [3, 2, 0, 1]):
        found = _native.maxsim(
            queries=query,
            query_offsets=np.array([0, 1]),
            tokens=codes[order].ravel(),
            scales=np.ones(4, np.float32),
            token_offsets=np.array([0, 4]),
            pairs=np.array([0, 0]),
            dimensions=1024,
            threads=1,
            level=level,
        )
        expected = (codes.astype(np.float64) @ query.astype(np.float64)).max()
        assert found.tolist() == pytest.approx([expected], rel=1e-6)


def test_nothing_to_compare() -> None:
    query, none = np.ones((2, 3)), np.empty((0, 3))
    assert ops.maxsim(query, [0, 2], none, [0, 0], [[0, 0]]).tolist() == [-np.inf]
    assert ops.maxsim(none, [0, 0], query, [0, 2], [[0, 0]]).tolist() == [0.0]
    assert ops.maxsim(query, [0, 2], query, [0, 2], np.empty((0, 2), np.int64)).tolist() == []


def test_torch_computes_the_same() -> None:
    torch = pytest.importorskip("torch")
    tokens = torch.tensor(np.concatenate(DOCUMENTS))
    found = ops.maxsim(np.concatenate(QUERIES), QUERY_OFFSETS, tokens, TOKEN_OFFSETS, PAIRS)
    for (q, d), score in zip(PAIRS, found, strict=True):
        if len(DOCUMENTS[d]) and len(QUERIES[q]):
            products = torch.tensor(QUERIES[q]) @ torch.tensor(DOCUMENTS[d]).T
            assert score == pytest.approx(float(products.max(dim=1).values.sum()), rel=1e-5)


GOOD: dict[str, Any] = {
    "queries": np.ones((3, 4), np.float32),
    "query_offsets": [0, 1, 3],
    "tokens": np.ones((5, 4), np.int8),
    "token_offsets": [0, 2, 5],
    "pairs": [[0, 0], [1, 1]],
    "scales": np.ones(5, np.float32),
}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("queries", np.ones(12), "queries: expected two dimensions"),
        ("queries", np.ones((3, 5)), "tokens: expected 5 dimensions"),
        ("queries", np.full((3, 4), np.nan), "queries: a number is infinite"),
        ("queries", np.ones((3, 0)), "dimensions"),
        ("query_offsets", [0, 1, 4], "query_offsets"),
        ("query_offsets", [], "query_offsets"),
        ("tokens", np.ones((5, 4), np.float32), "tokens: expected int8"),
        ("tokens", np.full((5, 4), 128), "tokens: contains a number"),
        ("tokens", np.ones((4, 4), np.int8), "scales: must hold one number"),
        ("token_offsets", [0, 2, 6], "token_offsets: document 1 starts at 2 and ends at 6; number of tokens: 5"),
        ("token_offsets", [0, 4, 3], "token_offsets"),
        ("token_offsets", [-1, 4, 5], "token_offsets"),
        ("token_offsets", [], "token_offsets"),
        ("pairs", [[0, 2]], "pairs: there is no document 2"),
        ("pairs", [[2, 0]], "pairs: there is no query 2"),
        ("pairs", [[-1, 0]], "pairs"),
        ("pairs", [[0, 0, 0]], "pairs: expected"),
        ("scales", np.full(5, np.nan), "scales"),
        ("scales", np.full(5, -1.0), "scales"),
        ("scales", np.ones(4), "scales"),
        ("threads", 0, "threads"),
        ("precision", "bf16", "precision: 'bf16' needs arrays on a GPU"),
    ],
)
def test_malformed(name: str, value: Any, message: str) -> None:
    with pytest.raises(ArrayError, match=message):
        ops.maxsim(**{**GOOD, name: value})
    assert ops.maxsim(**GOOD).tolist() == [4.0, 8.0]


def test_numbers_that_are_not_finite() -> None:
    tokens = np.ones((5, 4), np.float32)
    tokens[1, 2] = np.inf
    with pytest.raises(ArrayError, match="tokens: a score is infinite"):
        ops.maxsim(**{**GOOD, "tokens": tokens, "scales": None})
    assert ops.maxsim(**{**GOOD, "tokens": tokens, "scales": None, "pairs": [[1, 1]]}).tolist() == [8.0]


def test_a_large_map_is_not_read_before_it_is_needed(tmp_path: Any) -> None:
    """A store of 256 GB as a sparse file: the op touches the documents that pairs name."""
    count = 1 << 31
    with (tmp_path / "store").open("wb") as file:
        file.truncate(count * 128)
    tokens = np.memmap(tmp_path / "store", np.int8, "r", shape=(count, 128))
    scales = np.memmap(tmp_path / "store", np.float32, "r", shape=(count,))
    found = ops.maxsim(np.ones((2, 128)), [0, 2], tokens, [0, 5, count - 9, count], [[0, 0], [0, 2]], scales)
    assert found.tolist() == [0.0, 0.0]
