"""narrate against its reference, at every limit; malformed input."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pool_problems import lists
from references import narrate_reference

from pyfast import ops
from pyfast.errors import ArrayError
from pyfast.ops.arrays import Ragged

line = st.text(st.sampled_from("ab é漢😀\0") | st.characters(exclude_categories=["Cs"]), max_size=12)


def heap(lines: list[str]) -> Ragged:
    """Lines as the op takes them."""
    encoded = [line.encode() for line in lines]
    return np.cumsum([0, *map(len, encoded)]), np.frombuffer(b"".join(encoded), np.uint8)


@given(st.lists(line, min_size=1, max_size=13), st.data())
def test_reference(lines: list[str], data: st.DataObject) -> None:
    pools = data.draw(st.lists(st.lists(st.integers(0, len(lines) - 1), max_size=12), max_size=4))
    whole = [narrate_reference([lines[u] for u in pool], 10**9) for pool in pools]
    limits = {0, 1, 3, 4, 5, *(len(text) + more for text in whole for more in (-1, 0, 1) if len(text) + more >= 0)}
    for limit in limits:
        expected = [narrate_reference([lines[u] for u in pool], limit) for pool in pools]
        assert ops.narrate(heap(lines), *lists(pools), limit) == expected
        assert [ops.narrate(heap(lines), *lists([pool]), limit)[0] for pool in pools] == expected
    assert ops.narrate(heap(lines), *lists(pools), 10**9) == whole


GOOD = heap(["one", "zwei", "trois"])


@pytest.mark.parametrize(
    ("lines", "offsets", "documents", "characters", "name"),
    [
        (GOOD, [0, 1], [3], 99, "doc_ids"),
        (GOOD, [0, 1], [-1], 99, "doc_ids"),
        (GOOD, [0, 2], [1], 99, "pool_offsets"),
        (GOOD, [0, 1, 0], [1], 99, "pool_offsets"),
        (GOOD, [], [1], 99, "pool_offsets"),
        (GOOD, [0, 1], [1.0], 99, "doc_ids"),
        (GOOD, [0, 1], [1], -1, "characters"),
        (GOOD, [0, 1], [1], 1.5, "characters: expected an integer"),
        (([0, 3, 99, 12], GOOD[1]), [0, 1], [1], 99, "line_offsets"),
        (([0, 7, 3, 12], GOOD[1]), [0, 1], [1], 99, "line_offsets"),
        (([0, -7, 3, 12], GOOD[1]), [0, 1], [1], 99, "line_offsets"),
        (([0, 2**62, 2**62 + 1, 12], GOOD[1]), [0, 1], [1], 99, "line_offsets"),
        (([], GOOD[1]), [0, 1], [1], 99, "line_offsets"),
        ((GOOD[0], GOOD[1].astype(np.float32)), [0, 1], [1], 99, "lines"),
        ((GOOD[0].astype(float), GOOD[1]), [0, 1], [1], 99, "lines"),
        (["one", "zwei", "trois"], [0, 1], [1], 99, "lines"),
    ],
)
def test_malformed(lines: Any, offsets: Any, documents: Any, characters: Any, name: str) -> None:
    with pytest.raises(ArrayError, match=name):
        ops.narrate(lines, offsets, documents, characters)
    assert ops.narrate(GOOD, [0, 2], [2, 0], 99) == ["[1] trois\n[2] one"]


def test_broken_characters_are_no_text() -> None:
    with pytest.raises(UnicodeDecodeError):
        ops.narrate((np.array([0, 1]), np.array([0xFF], np.uint8)), [0, 1], [0], 99)
