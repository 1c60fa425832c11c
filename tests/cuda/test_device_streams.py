"""The windows of hseq_stream, their CUDA executed on the CPU, against the CPU's."""

import random

import device_ops
import numpy as np
from hypothesis import strategies as st
from test_hseq_stream import batch, forests, lists, priorities, split

from conftest import Way
from pyfast import ops
from pyfast.ops.hseq_stream import Cursors, Stream


def same(a: Cursors, b: Cursors) -> None:
    np.testing.assert_array_equal(a.place, b.place)
    for x, y in zip(a.selected, b.selected, strict=True):
        np.testing.assert_array_equal(x, y)


def check_step(
    way: Way, stream: Stream, cursors: Cursors, width: int, past: int, chance: random.Random
) -> Cursors:
    """One window and one step, of which some choices are of the window, and some twice."""
    expected = stream.window(cursors, width)
    for x, y in zip(device_ops.window(way.device, stream, cursors, width), expected, strict=True):
        np.testing.assert_array_equal(x, y)
    n = len(stream)
    chosen = [
        chance.sample(window, chance.randint(0, len(window)))
        + [chance.randrange(n) for _ in range(chance.randint(0, 3) if n else 0)]
        for window in split(expected)
    ]
    after = stream.refresh(cursors, lists(chosen), past)
    same(device_ops.refresh(way.device, stream, cursors, lists(chosen), past), after)
    return after


def test_windows_and_steps(way: Way) -> None:
    def check(drawn: tuple[tuple[np.ndarray, np.ndarray], list[int], int, random.Random]) -> None:
        (level, parent), priority, count, chance = drawn
        n = len(level)
        dead = np.array([chance.random() < 0.2 for _ in range(n)], bool) if chance.random() < 0.5 else None
        stream = ops.hseq_stream(level, parent, priority=priority, tombstones=dead)
        priors = [chance.sample(range(n), chance.randint(0, min(5, n))) for _ in range(count)]
        cursors = stream.cursors(count, lists(priors))
        for past in (0, 3, 100) if n else (0,):
            cursors = check_step(way, stream, cursors, chance.randint(0, 9), past, chance)

    chances = st.integers(0, 9999).map(random.Random)
    way.every(st.tuples(forests, priorities, st.integers(0, 4), chances), check)


def test_longer_streams(way: Way) -> None:
    """Windows of several ballots, and tombstones over more than one height of words."""
    stream, cursors = batch(5000, 40 if way.pools > 1 else 3)
    check_step(way, stream, cursors, 70, 40, random.Random(1))
    half = np.random.default_rng(0).permutation(5000)[:4900]
    check_step(way, stream.delete(half), cursors, 50, 0, random.Random(2))
