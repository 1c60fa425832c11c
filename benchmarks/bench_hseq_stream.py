"""hseq_stream: one step (select, refresh, window) of 200 cursors, on sequences of 10^4 to 10^7 segments.

What a step costs must not depend on how many segments there are: the sizes take turns, so that what else the
machine does meets them all.
"""

from __future__ import annotations

from statistics import median
from time import perf_counter

import numpy as np
import numpy.typing as npt
import pytest
from measuring import NOTES, POOLS, THREADS, Measure

from pyfast import ops

Array = npt.NDArray[np.int64]
SIZES = [10**4, 10**5, 10**6, 10**7]
PRIORITY = (2, 5, 3, 8)
WIDTH, CHOSEN, PRIOR = 32, 4, 20


class Run:
    """Cursors that have been through four steps, with priors that a search may have found."""

    def __init__(self, segments: int, scattered: bool = False) -> None:
        level, parent = sequence(segments)
        self.stream = ops.hseq_stream(level, parent, priority=PRIORITY, tombstones=np.arange(segments) % 50 == 0)
        chance = np.random.default_rng(0)
        self.priors = [chance.choice(segments, PRIOR, replace=False) for _ in range(POOLS)]
        self.cursors = self.stream.cursors(priors=(np.arange(POOLS + 1) * PRIOR, np.concatenate(self.priors)))
        for _ in range(4):
            self.cursors = self.stream.refresh(self.cursors, self.chosen())
        if scattered:
            place = chance.integers(PRIOR, len(self.stream.order) - 1000, POOLS)
            self.cursors = ops.Cursors(place, self.cursors.selected, self.cursors.priors)
        self.choice = self.chosen()

    def chosen(self) -> tuple[Array, Array]:
        """The first `CHOSEN` of each window."""
        offsets, segments = self.stream.window(self.cursors, CHOSEN)
        return offsets, segments

    def step(self, threads: int = 1) -> Array:
        """[POOLS, WIDTH]"""
        after = self.stream.refresh(self.cursors, self.choice, threads=threads)
        return self.stream.window(after, WIDTH, threads)[1].reshape(POOLS, WIDTH)

    def selected(self, p: int) -> Array:
        """What cursor p has selected after the step."""
        offsets, segments = self.stream.refresh(self.cursors, self.choice).selected
        return segments[offsets[p] : offsets[p + 1]]


def sequence(segments: int) -> tuple[npt.NDArray[np.uint8], Array]:
    """(level, parent): documents of 99 paragraphs and sentences, cut off at the end."""
    place = np.arange(segments)
    within = place % 100
    is_paragraph = within % 11 == 1
    level = np.where(within == 0, 0, np.where(is_paragraph, 2, 3)).astype(np.uint8)
    above = np.where(is_paragraph, place - within, place - (within - 1) % 11)
    return level, np.where(within == 0, -1, above)


@pytest.fixture(scope="module")
def runs() -> dict[int, Run]:
    return {size: Run(size) for size in SIZES}


def test_flat(runs: dict[int, Run], measure: Measure) -> None:
    scattered = {f"{size:,}, cursors all over": Run(size, scattered=True) for size in (SIZES[0], SIZES[-1])}
    named = {**{f"{size:,}": run for size, run in runs.items()}, **scattered}
    took: dict[str, list[float]] = {name: [] for name in named}

    def turn() -> None:
        for name, run in named.items():
            began = perf_counter()
            run.step()
            took[name].append(perf_counter() - began)

    measure.benchmark.group = "hseq_stream"
    measure.benchmark.pedantic(turn, rounds=300, warmup_rounds=5)
    first = median(took[f"{SIZES[0]:,}"])
    for name, times in took.items():
        NOTES.append(
            f"hseq_stream step, {name} segments: {median(times) / POOLS * 1e6:.3f} us a cursor, 1 thread, "
            f"{median(times) / first:.2f} times that of {SIZES[0]:,} (goal: 1.10 at most)"
        )


@pytest.mark.parametrize("threads", sorted({1, THREADS}))
@pytest.mark.parametrize("size", SIZES)
def test_pyfast(runs: dict[int, Run], measure: Measure, size: int, threads: int) -> None:
    measure.op(f"hseq_stream, 10^{len(str(size)) - 1}", threads, lambda: runs[size].step(threads))


@pytest.mark.parametrize("size", SIZES)
def test_numpy_mask(runs: dict[int, Run], measure: Measure, size: int) -> None:
    """A mask over the order, per question: what was selected, deleted or is in the prior."""
    run = runs[size]
    order = np.concatenate([np.flatnonzero(run.stream.level == level) for level in PRIORITY])
    gone = run.stream.tombstones.astype(bool)
    selected = [run.selected(p) for p in range(20)]

    def step(p: int) -> Array:
        left = ~gone
        left[selected[p]] = False
        prior = run.priors[p]
        first = prior[left[prior]][:WIDTH]
        left[prior] = False
        return np.concatenate([first, order[left[order]][: WIDTH - len(first)]])

    def compare() -> None:
        assert all(np.array_equal(run.step()[p], step(p)) for p in range(20))

    measure.check(compare)
    measure.peer(f"hseq_stream, 10^{len(str(size)) - 1}", "numpy, mask", 10, step, pools=20)


@pytest.mark.parametrize("size", SIZES[-1:])
def test_numpy_head(runs: dict[int, Run], measure: Measure, size: int) -> None:
    """Only as much of the order as can be needed, where the deleted segments were taken out of it before."""
    run = runs[size]
    order = run.stream.order[run.stream.tombstones[run.stream.order] == 0]
    selected = [run.selected(p) for p in range(POOLS)]
    priors = [prior[run.stream.tombstones[prior] == 0] for prior in run.priors]

    def step(p: int) -> Array:
        taken, prior = selected[p], priors[p]
        head = order[: WIDTH + len(taken) + len(prior)]
        first = prior[~np.isin(prior, taken)]
        rest = head[~np.isin(head, np.concatenate([taken, prior]))]
        return np.concatenate([first, rest])[:WIDTH]

    def compare() -> None:
        assert all(np.array_equal(run.step()[p], step(p)) for p in range(POOLS))

    measure.check(compare)
    measure.peer(f"hseq_stream, 10^{len(str(size)) - 1}", "numpy, head of the order", 10, step)
