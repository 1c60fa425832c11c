"""The windows of hseq_stream, their CUDA executed on the CPU, against the CPU's."""

import random
from dataclasses import replace

import device_ops
import numpy as np
import pytest
from device_ops import Device, Malformed, TwoWays
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


def check_far_apart(device: Device) -> None:
    """Few live places in a long stream: the way to the next one leads over three heights of words."""
    places = 300_000
    live = np.array([3, 70, 4_200, 5_000, 262_161, 262_200, 299_999])
    dead = np.ones(places, np.uint8)
    dead[live] = 0
    stream = ops.hseq_stream(np.full(places, 2), np.full(places, -1), priority=[2], tombstones=dead)
    cursors = replace(stream.cursors(6), place=np.array([0, 71, 5_001, 262_162, 299_999, places]))
    offsets, segments = device_ops.window(device, stream, cursors, 3)
    for place, found in zip(cursors.place, split((offsets, segments)), strict=True):
        assert found == live[live >= place][:3].tolist()


def check_beyond(device: Device) -> None:
    """A cursor may be behind the last place of its stream, and not a place further."""
    stream, cursors = batch(3000, 3)
    lengths = np.diff(cursors.priors[0]) + len(stream.order)
    offsets, _ = device_ops.window(device, stream, replace(cursors, place=lengths), 3)
    assert not offsets.any()
    with pytest.raises(Malformed, match="places"):
        device_ops.window(device, stream, replace(cursors, place=lengths + np.array([0, 1, 0])), 3)


def check_steps(device: Device) -> None:
    """Windows that end within a ballot and beyond one; choices of the window, some of them made twice."""
    stream, cursors = batch(3000, 5)
    for width in (1, 7, 32, 50):
        expected = stream.window(cursors, width)
        for x, y in zip(device_ops.window(device, stream, cursors, width), expected, strict=True):
            np.testing.assert_array_equal(x, y)
        chosen = lists([[*window[::2], *window[:40]] for window in split(expected)])
        same(device_ops.refresh(device, stream, cursors, chosen, 2), stream.refresh(cursors, chosen, 2))
        cursors = stream.refresh(cursors, chosen, 2)


def check_scan(device: Device, size: int) -> None:
    numbers = np.random.default_rng(size).integers(-9, 2**40, size)
    np.testing.assert_array_equal(device_ops.scan(device, numbers), np.cumsum(numbers))


def test_streams_with_few_live_places(way: Way) -> None:
    check_far_apart(way.device)


def test_cursors_beyond_their_stream(way: Way) -> None:
    check_beyond(way.device)


def test_steps_with_choices_made_twice(way: Way) -> None:
    if way.examples < 10:
        pytest.skip("takes the interpreter some time: see its long run")
    check_steps(way.device)


@pytest.mark.parametrize("size", [1, 1023, 1024, 1025, 2049, 5000])
def test_running_sums(way: Way, size: int) -> None:
    """In one tile, and in several."""
    if way.examples < 10 and size > 1025:
        pytest.skip("takes the interpreter some time: see its long run")
    check_scan(way.device, size)


def test_running_sums_of_more_tiles_than_one_block_adds_at_once(emulated: TwoWays) -> None:
    check_scan(emulated, 1024 * 1024 + 1)


def test_longer_streams(way: Way) -> None:
    """Windows of several ballots, and tombstones over more than one height of words."""
    stream, cursors = batch(5000, 40 if way.pools > 1 else 3)
    check_step(way, stream, cursors, 70, 40, random.Random(1))
    half = np.random.default_rng(0).permutation(5000)[:4900]
    check_step(way, stream.delete(half), cursors, 50, 0, random.Random(2))
