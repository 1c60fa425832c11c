"""maxsim, its CUDA executed on the CPU, against the CPU's."""

import device_ops
import numpy as np
from hypothesis import strategies as st
from test_maxsim import codes_of, every_pair, vectors

from conftest import Way
from pyfast import ops

SIZES = st.lists(st.integers(0, 40), min_size=1, max_size=3)


def test_maxsim_has_the_same_bits(way: Way) -> None:
    def check(drawn: tuple[list[int], list[int], int, bool]) -> None:
        asked, read, dimensions, coded = drawn
        queries, query_offsets = vectors(asked, dimensions, 1)
        documents, token_offsets = vectors(read, dimensions, 2)
        tokens, scales = np.concatenate(documents), None
        if coded:
            tokens, scales = codes_of(tokens)
        pairs = every_pair(queries, documents)
        arguments = np.concatenate(queries), query_offsets, tokens, token_offsets, pairs, scales
        if len(tokens) or not coded:  # without a token nothing says that they are codes
            assert device_ops.maxsim(way.device, *arguments).tobytes() == ops.maxsim(*arguments).tobytes()

    way.every(st.tuples(SIZES, SIZES, st.sampled_from([1, 5, 33, 64]), st.booleans()), check)
