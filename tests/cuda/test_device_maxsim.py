"""maxsim, its CUDA executed on the CPU, against the CPU's."""

import device_ops
import numpy as np
import pytest
from device_ops import Malformed, TwoWays
from hypothesis import strategies as st
from pool_problems import Array
from test_maxsim import codes_of, every_pair, vectors

from conftest import Way
from pyfast import ops

SIZES = st.lists(st.integers(0, 40), min_size=1, max_size=3)
ORDERS = ["by query", "by document", "some", "in no order"]


def ordered(pairs: Array, order: str) -> Array:
    if order == "by document":
        return pairs[np.lexsort((pairs[:, 0], pairs[:, 1]))]
    random = np.random.default_rng(len(pairs))
    if order == "some":  # of each query a few, some of them twice
        return pairs[np.sort(random.integers(0, len(pairs), len(pairs) + 1))]
    return random.permutation(pairs) if order == "in no order" else pairs


def test_maxsim_has_the_same_bits(way: Way) -> None:
    def check(drawn: tuple[list[int], list[int], int, bool, str]) -> None:
        asked, read, dimensions, coded, order = drawn
        queries, query_offsets = vectors(asked, dimensions, 1)
        documents, token_offsets = vectors(read, dimensions, 2)
        tokens, scales = np.concatenate(documents), None
        if coded:
            tokens, scales = codes_of(tokens)
        pairs = ordered(every_pair(queries, documents), order)
        arguments = np.concatenate(queries), query_offsets, tokens, token_offsets, pairs, scales
        if len(tokens) or not coded:  # without a token nothing says that they are codes
            assert device_ops.maxsim(way.device, *arguments).tobytes() == ops.maxsim(*arguments).tobytes()

    dimensions = st.sampled_from([1, 5, 16, 33, 48, 64, 132])
    way.every(st.tuples(SIZES, SIZES, dimensions, st.booleans(), st.sampled_from(ORDERS)), check)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("asked", "read"),
    [([70, 3, 0, 65], [33, 1, 0, 270]), ([32], [10] * 40), ([1] * 35, [2, 300]), ([140], [128, 64])],
    ids=str,
)
def test_tiles_of_every_kind(emulated: TwoWays, asked: list[int], read: list[int], order: str) -> None:
    """Queries and documents of several tiles, several of them in a tile; more pairs than a block takes."""
    queries, query_offsets = vectors(asked, 32, 1)
    documents, token_offsets = vectors(read, 32, 2)
    tokens, pairs = np.concatenate(documents), ordered(every_pair(queries, documents), order)
    for one, scales in ((tokens, None), codes_of(tokens)):
        arguments = np.concatenate(queries), query_offsets, one, token_offsets, pairs, scales
        assert device_ops.maxsim(emulated, *arguments).tobytes() == ops.maxsim(*arguments).tobytes()


def rounded(x: Array) -> Array:
    """To bfloat16, of two nearest to the even one."""
    bits = x.view(np.uint32)
    return (bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000).astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("dimensions", [3, 32, 128])
def test_bf16_is_off_by_its_rounding_alone(way: Way, dimensions: int) -> None:
    queries, query_offsets = vectors([5, 32], dimensions, 1)
    documents, token_offsets = vectors([40, 3, 0], dimensions, 2)
    asked, tokens, pairs = np.concatenate(queries), np.concatenate(documents), every_pair(queries, documents)
    found = device_ops.maxsim(way.device, asked, query_offsets, tokens, token_offsets, pairs, precision="bf16")
    near = ops.maxsim(rounded(asked), query_offsets, rounded(tokens), token_offsets, pairs)
    np.testing.assert_allclose(found, near, rtol=1e-5, atol=1e-5)
    exact = ops.maxsim(asked, query_offsets, tokens, token_offsets, pairs)
    held = np.isfinite(exact)
    each = np.array([len(queries[q]) for q, _ in pairs])
    assert (np.abs(found[held] - exact[held]) <= each[held] / 127).all()
    if dimensions == 128:  # on average, as the documentation has it: errors of a query's tokens partly cancel out
        assert np.abs((found[held] - exact[held]) / each[held]).mean() < 0.0002


def test_equal_products_and_zeros(emulated: TwoWays) -> None:
    """The first of equal tokens counts; -0 is no less than 0, and a product may be no less than -infinity."""
    asked = np.array([[1, -1, 0, 2], [-0.0, 0, 0, 0], [1e30, 1, 1, 1]], np.float32)
    codes = np.array([[0, 0, 1, 0], [1, 1, 0, 0], [-1, 1, 0, 0], [2, 2, 0, 0], [5, 1, 3, 2]], np.int8)
    for scales in ([0, 1, 1, 1, 0], [0] * 5, [1] * 5, [1e8, 0, 1e-30, 1, 0]):
        some = np.array(scales, np.float32)
        arguments = asked, [0, 1, 2, 3], codes, [0, 4, 5], every_pair([asked] * 3, [codes] * 2), some
        here = [np.asarray(each) if isinstance(each, list) else each for each in arguments]
        assert device_ops.maxsim(emulated, *here).tobytes() == ops.maxsim(*arguments).tobytes()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("place", [0, 7])
def test_products_that_are_not_finite(emulated: TwoWays, value: float, place: int) -> None:
    """Wherever it is in a document, and if it were never the largest."""
    asked, tokens = np.full((2, 4), -2, np.float32), np.ones((8, 4), np.float32)
    tokens[place, 1:3] = value
    for pairs in ([[0, 0]], [[0, 1], [0, 0]]):
        given = asked, np.array([0, 2]), tokens, np.array([0, 8, 8]), np.array(pairs)
        with pytest.raises(Malformed, match="scores"):
            device_ops.maxsim(emulated.driver, *given)
        device_ops.maxsim(emulated, *given[:4], np.array([[0, 1]]))  # it is not looked at
