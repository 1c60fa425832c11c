"""hseq_stream against plain Python that looks at every segment, in any order of calls."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from pool_problems import ends
from references import hseq_stream_reference, neighbors_reference, window_reference
from test_inputs import longest_pause

from pyfast import _native as native
from pyfast import ops
from pyfast.errors import ArrayError
from pyfast.ops.hseq_stream import Lists, subtree_ends

KINDS = ("children", "parent", "row", "column", "relation")
# What may be under what, by level; the first two levels named are those of roots.
UNDER = {-1: (0, 4), 0: (1, 2, 7), 1: (2,), 2: (3,), 4: (5,), 5: (6,), 7: (8,)}
# Of these each segment is drawn; a deeper level is likelier, so that rows get cells.
STEPS = st.integers(0, 11)


def forest(steps: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """(level, parent) in depth-first order: each number tells how many segments to close, and what opens."""
    levels: list[int] = []
    parents: list[int] = []
    open_: list[int] = []
    for step in steps:
        while open_ and (levels[open_[-1]] not in UNDER or (step % 4 == 0 and step)):
            open_.pop()
            step = max(step - 4, 1)
        above = open_[-1] if open_ else -1
        choices = UNDER[levels[above] if open_ else -1]
        open_.append(len(levels))
        levels.append(choices[step % len(choices)])
        parents.append(above)
    return np.array(levels, np.uint8), np.array(parents, np.int64)


forests = st.lists(STEPS, max_size=60).map(forest)
priorities = st.permutations(range(9)).flatmap(lambda p: st.integers(0, 9).map(lambda k: p[:k]))


def lists(values: list[list[int]]) -> Lists:
    return ends(values), np.array([v for inner in values for v in inner], dtype=np.int64)


def split(found: Lists) -> list[list[int]]:
    offsets, segments = found
    assert offsets.dtype == segments.dtype == np.int64 and offsets[0] == 0 and offsets[-1] == len(segments)
    return [segments[a:b].tolist() for a, b in pairwise(offsets.tolist())]


@given(forests)
def test_subtree_ends(columns: tuple[np.ndarray, np.ndarray]) -> None:
    _, parent = columns
    expected = []
    for i in range(len(parent)):
        inside = {i}
        for j in range(i + 1, len(parent)):
            if int(parent[j]) in inside:
                inside.add(j)
        expected.append(max(inside) + 1)
    found = subtree_ends(parent)
    assert found.tolist() == expected
    native.hseq_check_subtree_ends(parent, found)
    for i in range(len(parent)):
        wrong = found.copy()
        wrong[i] += 1 if i % 2 else -1
        with pytest.raises(ValueError, match="subtree_end"):
            native.hseq_check_subtree_ends(parent, wrong)


class Questions(RuleBasedStateMachine):
    """Cursors that come and go, select, move on, while segments are deleted; beside a list for each."""

    @initialize(columns=forests, priority=priorities, chance=st.randoms(use_true_random=False))
    def begin(self, columns: tuple[np.ndarray, np.ndarray], priority: list[int], chance: Any) -> None:
        self.level, self.parent = columns
        self.n, self.priority, self.chance = len(self.level), priority, chance
        self.dead = {i for i in range(self.n) if chance.random() < 0.2} if chance.random() < 0.5 else set()
        mask = np.isin(np.arange(self.n), list(self.dead))
        self.stream = ops.hseq_stream(
            self.level, self.parent, priority=priority, tombstones=mask if self.dead else None
        )
        self.cursors = self.stream.cursors(0)
        self.rest: list[list[int]] = []  # what each cursor has not left behind, selected and deleted ones too
        self.selected: list[list[int]] = []

    def windows(self, width: int) -> list[list[int]]:
        return [
            window_reference((s for s in rest if s not in self.dead), selected, width)
            for rest, selected in zip(self.rest, self.selected, strict=True)
        ]

    def some(self, most: int) -> list[int]:
        return self.chance.sample(range(self.n), self.chance.randint(0, min(most, self.n)))

    @rule(count=st.integers(0, 3), with_priors=st.booleans())
    def come(self, count: int, with_priors: bool) -> None:
        priors = [self.some(5) if with_priors else [] for _ in range(count)]
        new = self.stream.cursors(count, lists(priors) if with_priors else None)
        self.cursors = ops.Cursors.join([self.cursors, new])
        self.rest += [list(hseq_stream_reference(self.level, self.priority, (), prior)) for prior in priors]
        self.selected += [[] for _ in priors]

    @rule(first=st.integers(0, 5), count=st.integers(0, 3))
    def go(self, first: int, count: int) -> None:
        self.cursors = ops.Cursors.join([self.cursors[:first], self.cursors[first + count :]])
        for model in (self.rest, self.selected):
            del model[first : first + count]

    @rule(width=st.integers(0, 9), past=st.sampled_from([0, 0, 1, 3, 100]), others=st.booleans())
    def step(self, width: int, past: int, others: bool) -> None:
        windows, behind = self.windows(width), self.windows(past)
        chosen = [
            self.chance.sample(window, self.chance.randint(0, len(window))) + (self.some(3) if others else [])
            for window in windows
        ]
        self.cursors = self.stream.refresh(self.cursors, lists(chosen), past)
        for c, more in enumerate(chosen):
            if past:
                rest = self.rest[c]
                self.rest[c] = rest[rest.index(behind[c][-1]) + 1 :] if len(behind[c]) == past else []
            self.selected[c] = list(dict.fromkeys(self.selected[c] + more))

    @rule(again=st.booleans())
    def delete(self, again: bool) -> None:
        roots = self.some(2) * (2 if again else 1)
        before, old = self.stream, self.windows(5)
        self.stream = before.delete(roots)
        assert split(before.window(self.cursors, 5)) == old  # the old value is as it was
        end = self.stream.subtree_end
        self.dead |= {i for root in roots for i in range(root, end[root])}

    @invariant()
    def as_in_the_model(self) -> None:
        if not hasattr(self, "n"):
            return
        assert split(self.cursors.selected) == self.selected
        for width in (0, 1, 4, 1000):
            assert split(self.stream.window(self.cursors, width)) == self.windows(width)

    @rule(kind=st.sampled_from(KINDS), limit=st.sampled_from([None, 0, 1, 3]))
    def neighbors(self, kind: Any, limit: int | None) -> None:
        of = [self.some(4) for _ in self.rest]
        each = {i: self.expected(i, kind) for i in range(self.n)}
        assert split(self.stream.neighbors(range(self.n), kind, limit=limit)) == [
            each[i][:limit] for i in range(self.n)
        ]
        together = [
            [i for i in dict.fromkeys(j for s in segments for j in each[s]) if i not in selected][:limit]
            for segments, selected in zip(of, self.selected, strict=True)
        ]
        assert split(self.stream.neighbors(lists(of), kind, self.cursors, limit)) == together

    def expected(self, i: int, kind: Any) -> list[int]:
        return [j for j in neighbors_reference(self.level, self.parent, i, kind) if j not in self.dead]


TestQuestions = Questions.TestCase
TestQuestions.settings = settings(max_examples=60, stateful_step_count=15)


def test_forests_have_what_neighbours_need() -> None:
    found = dict.fromkeys(KINDS, 0)
    for seed in range(30):
        steps = np.random.default_rng(seed).integers(0, 12, 60).tolist()
        level, parent = forest(steps)
        stream = ops.hseq_stream(level, parent, priority=[2])
        for kind in KINDS:
            found[kind] += len(stream.neighbors(range(len(level)), kind)[1])
    assert min(found.values()) > 20, found


def test_neighbours_of_a_list_come_once() -> None:
    # A table of two rows of two cells.
    stream = ops.hseq_stream([4, 5, 6, 6, 5, 6, 6], [-1, 0, 1, 1, 0, 4, 4], priority=[5])
    lists_ = (np.array([0, 3, 5, 5]), np.array([2, 3, 2, 6, 5]))
    assert split(stream.neighbors(lists_, "parent")) == [[1], [4], []]
    assert split(stream.neighbors(lists_, "row")) == [[3, 2], [5, 6], []]
    cursors = stream.refresh(stream.cursors(3), (np.array([0, 1, 2, 2]), np.array([3, 6])))
    assert split(stream.neighbors(lists_, "row", cursors)) == [[2], [5], []]
    assert split(stream.neighbors(lists_, "row", limit=1)) == [[3], [5], []]


# Word boundaries of the tombstones' bits, on every height.
@pytest.mark.parametrize("n", [1, 63, 64, 65, 4095, 4096, 4097, 64**3 + 65])
def test_deleted_runs(n: int) -> None:
    chance = np.random.default_rng(n)
    level = np.zeros(n, np.uint8)
    parent = np.full(n, -1)
    for dead in ([0], range(n), range(n - 1), chance.permutation(n)[: n // 2], range(n // 3, n - n // 5)):
        dead = np.array(dead, np.int64)
        mask = np.zeros(n, bool)
        mask[dead] = True
        at_once = ops.hseq_stream(level, parent, priority=[0], tombstones=mask)
        later = ops.hseq_stream(level, parent, priority=[0]).delete(dead)
        live = np.flatnonzero(~mask)
        assert np.array_equal(at_once.live, later.live) and np.array_equal(at_once.tombstones, later.tombstones)
        starts = np.unique(np.clip([0, 1, 62, 63, 64, 65, n // 3, n // 2, n - 2, n - 1, n], 0, n))
        cursors = ops.Cursors(starts, *(later.cursors(len(starts)).selected,) * 2)
        for from_, found in zip(starts, split(later.window(cursors, 70)), strict=True):
            assert found == live[np.searchsorted(live, from_) :][:70].tolist()


def batch(n: int = 20_000, count: int = 1000) -> tuple[ops.Stream, ops.Cursors]:
    level, parent = forest(np.random.default_rng(0).integers(0, 12, n).tolist())
    stream = ops.hseq_stream(level, parent, priority=[2, 5, 3, 8]).delete(range(0, 3000, 7))
    chance = np.random.default_rng(1)
    priors = [chance.permutation(n)[: chance.integers(0, 40)].tolist() for _ in range(count)]
    chosen = [chance.permutation(n)[: chance.integers(0, 30)].tolist() for _ in range(count)]
    return stream, stream.refresh(stream.cursors(count, lists(priors)), lists(chosen), past=3)


def test_threads_and_batches_change_nothing() -> None:
    stream, cursors = batch()
    n = len(cursors)

    def results(part: ops.Cursors, threads: int) -> list[Any]:
        windows = stream.window(part, 40, threads)
        after = stream.refresh(part, windows, 10, threads)
        near = stream.neighbors(windows, "children", after, threads=threads)
        return [split(windows), after.place.tolist(), split(after.selected), split(near)]

    whole = results(cursors, 1)
    assert all(results(cursors, threads) == whole for threads in (2, 5))
    for size in (1, 7, 64, 300):
        parts = [results(cursors[i : i + size], 2) for i in range(0, n, size)]
        assert [[x for part in parts for x in part[k]] for k in range(4)] == whole


def test_other_threads_run_during_a_call() -> None:
    stream, _ = batch()
    cursors = stream.cursors(3000)
    assert any(longest_pause(lambda: stream.window(cursors, 10_000)) < 0.5 for _ in range(3))


def test_an_order_made_before() -> None:
    stream, cursors = batch()
    again = ops.hseq_stream(
        *(stream.level, stream.parent, stream.subtree_end),
        priority=[],
        order=(stream.order, stream.starts),
        tombstones=stream.tombstones,
    )
    assert split(again.window(cursors, 20)) == split(stream.window(cursors, 20))


def test_more_segments_than_32_bits_count(tmp_path: Path) -> None:
    n = 5_000_000_000
    try:
        columns = {
            name: np.memmap(tmp_path / name, dtype, "w+", shape=(n,))
            for name, dtype in (("level", np.uint8), ("parent", np.int64), ("end", np.int64), ("order", np.int64))
        }
    except OSError as error:
        pytest.skip(f"no sparse files of this size here: {error}")
    # A table of two rows of two cells at the far end; of all that is before it nothing is read.
    t = n - 7
    columns["level"][t:] = [4, 5, 6, 6, 5, 6, 6]
    columns["parent"][t:] = [-1, t, t + 1, t + 1, t, t + 4, t + 4]
    columns["end"][t:] = [n, t + 4, t + 3, t + 4, n, t + 6, n]
    columns["order"][n - 6 :] = [t + 1, t + 4, t + 2, t + 3, t + 5, t + 6]
    stream = ops.hseq_stream(
        *(columns["level"], columns["parent"], columns["end"]),
        priority=[],
        order=(columns["order"], [0, n - 4, n]),
    )
    start = stream.cursors(2, (np.array([0, 0, 1]), np.array([t + 4])))
    cursors = ops.Cursors(np.array([n - 6, n - 5]), start.selected, start.priors)
    assert split(stream.window(cursors, 3)) == [[t + 1, t + 4, t + 2], [t + 1, t + 2, t + 3]]
    after = stream.refresh(cursors, (np.array([0, 1, 2]), np.array([t + 1, t + 6])), past=2)
    assert after.place.tolist() == [n - 4, n - 2] and split(after.selected) == [[t + 1], [t + 6]]
    assert split(stream.window(after, 9)) == [[t + 2, t + 3, t + 5, t + 6], [t + 3, t + 5]]
    assert split(stream.neighbors([t], "children")) == [[t + 1, t + 4]]
    assert split(stream.neighbors([t + 2, t + 6], "column")) == [[t + 5], [t + 3]]
    assert split(stream.neighbors([t + 2, t + 6], "row")) == [[t + 3], [t + 5]]


GOOD = ops.hseq_stream([4, 5, 6, 6, 5, 6, 0, 7, 8, 8], [-1, 0, 1, 1, 0, 4, -1, 6, 7, 7], priority=[5, 8, 6])
WITH = GOOD.delete([5])
ONE = GOOD.cursors(1)
BIG = np.iinfo(np.int64).max


def altered(column: str, place: int, value: int) -> ops.Stream:
    columns = {name: getattr(GOOD, name).copy() for name in ("level", "parent", "subtree_end")}
    columns[column][place] = value
    order = (GOOD.order, GOOD.starts)
    return ops.hseq_stream(*columns.values(), priority=[], order=order)


def cursor(place: Any = 0, selected: Any = ([0, 0], []), priors: Any = ([0, 0], [])) -> Any:
    return ops.Cursors(np.array([place]), *(tuple(map(np.array, lists)) for lists in (selected, priors)))


BAD_COLUMNS: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "level too high": (([9], [-1]), {}, "level"),
    "level that does not fit": (([256], [-1]), {}, "level"),
    "level negative": (([-1], [-1]), {}, "level"),
    "level of floats": (([0.0], [-1]), {}, "level"),
    "level in two dimensions": (([[0]], [-1]), {}, "level"),
    "parent itself": (([0, 2], [-1, 1]), {}, "parent"),
    "parent behind": (([0, 2, 2], [-1, 2, 0]), {}, "parent"),
    "parent closed": (([0, 0, 2], [-1, -1, 0]), {}, "parent"),
    "parent below -1": (([0], [-2]), {}, "parent"),
    "parent huge": (([0, 2], [-1, BIG]), {}, "parent"),
    "parent above 64 bits": (([0, 2], [-1, 2**64]), {}, "parent"),
    "parent too short": (([0, 2], [-1]), {}, "parent"),
    "end too short": (([0], [-1], []), {}, "subtree_end"),
    "tombstones too short": (([0], [-1]), {"tombstones": []}, "tombstones"),
    "tombstones too long": (([0], [-1]), {"tombstones": [0, 1]}, "tombstones"),
    "tombstones of floats": (([0], [-1]), {"tombstones": [0.5]}, "tombstones"),
    "priority twice": (([0], [-1]), {"priority": [2, 2]}, "priority"),
    "priority unknown": (([0], [-1]), {"priority": [9]}, "priority"),
    "priority negative": (([0], [-1]), {"priority": [-1]}, "priority"),
    "order without starts": (([0], [-1]), {"order": ([0], []), "tombstones": [1]}, "order"),
    "order beyond": (([0], [-1]), {"order": ([1], [0, 1]), "tombstones": [1]}, "order"),
    "order too long": (([0], [-1]), {"order": ([0, 0], [0, 2]), "tombstones": [1]}, "order|tombstones"),
}


@pytest.mark.parametrize("case", BAD_COLUMNS)
def test_malformed_columns(case: str) -> None:
    columns, options, name = BAD_COLUMNS[case]
    with pytest.raises(ArrayError, match=name):
        stream = ops.hseq_stream(*columns, **{"priority": [0], **options})
        stream.window(stream.cursors(1), 1)


BAD_CALLS: dict[str, tuple[Any, str]] = {
    "width negative": (lambda: GOOD.window(ONE, -1), "width"),
    "width no integer": (lambda: GOOD.window(ONE, 1.5), "width: expected an integer"),  # type: ignore[arg-type]
    "width above 64 bits": (lambda: GOOD.window(ONE, 2**64), "width: expected an integer"),
    "past negative": (lambda: GOOD.refresh(ONE, ([0, 0], []), -1), "past"),
    "cursors negative": (lambda: GOOD.cursors(-5), "count"),
    "no cursors": (lambda: GOOD.window(3, 1), "cursors"),  # type: ignore[arg-type]
    "every second cursor": (lambda: ONE[::2], "cursors"),
    "place negative": (lambda: GOOD.window(cursor(place=-1), 1), "place"),
    "place behind the end": (lambda: GOOD.window(cursor(place=8), 1), "place"),
    "place huge": (lambda: GOOD.refresh(cursor(place=BIG), ([0, 0], []), 1), "place"),
    "prior negative": (lambda: GOOD.window(cursor(priors=([0, 1], [-1])), 1), "priors"),
    "prior beyond": (lambda: GOOD.window(cursor(priors=([0, 1], [10])), 0), "priors"),
    "prior huge": (lambda: GOOD.window(cursor(priors=([0, 1], [BIG])), 0), "priors"),
    "prior twice": (lambda: GOOD.window(cursor(priors=([0, 3], [1, 2, 1])), 1), "priors"),
    "prior of floats": (lambda: GOOD.cursors(priors=([0, 1], [0.5])), "priors"),
    "priors decreasing": (lambda: GOOD.window(cursor(priors=([0, 3], [1])), 1), "priors"),
    "priors for two": (lambda: GOOD.window(cursor(priors=([0, 0, 0], [])), 1), "priors"),
    "priors no pair": (lambda: GOOD.cursors(priors=[1]), "priors"),  # type: ignore[arg-type]
    "selected beyond": (lambda: GOOD.window(cursor(selected=([0, 1], [10])), 1), "selected"),
    "selected negative": (lambda: GOOD.refresh(cursor(selected=([0, 1], [-5])), ([0, 0], [])), "selected"),
    "selected without offsets": (lambda: GOOD.window(cursor(selected=([], [])), 1), "selected"),
    "chosen beyond": (lambda: GOOD.refresh(ONE, ([0, 1], [10])), "chosen"),
    "chosen negative": (lambda: GOOD.refresh(ONE, ([0, 1], [-1])), "chosen"),
    "chosen for two": (lambda: GOOD.refresh(ONE, ([0, 0, 0], [])), "chosen"),
    "chosen offsets": (lambda: GOOD.refresh(ONE, ([0, 9], [1])), "chosen"),
    "deleted beyond": (lambda: GOOD.delete([10]), "segments"),
    "deleted negative": (lambda: WITH.delete([-1]), "segments"),
    "neighbours beyond": (lambda: GOOD.neighbors([10], "row"), "segments"),
    "neighbours negative": (lambda: GOOD.neighbors([-1], "children"), "segments"),
    "neighbours of lists": (lambda: GOOD.neighbors(([0, 2], [1]), "children"), "segments"),
    "neighbours of no kind": (lambda: GOOD.neighbors([1], "aunt"), "kind"),  # type: ignore[arg-type]
    "limit negative": (lambda: GOOD.neighbors([1], "children", limit=-1), "limit"),
    "neighbours for others": (lambda: GOOD.neighbors([1, 2], "children", ONE), "selected"),
    "threads": (lambda: GOOD.window(ONE, 1, threads=0), "threads"),
    "end before": (lambda: altered("subtree_end", 2, 2).neighbors([1], "children"), "subtree_end"),
    "end beyond": (lambda: altered("subtree_end", 5, 11).neighbors([4], "children"), "subtree_end"),
    "end negative": (lambda: altered("subtree_end", 0, -BIG).delete([0]), "subtree_end"),
    "end huge": (lambda: altered("subtree_end", 0, BIG).delete([0]), "subtree_end"),
    "end in another": (lambda: altered("subtree_end", 1, 7).neighbors([1], "children"), "subtree_end"),
    "parent behind": (lambda: altered("parent", 2, 3).neighbors([2], "parent"), "parent"),
    "parent huge": (lambda: altered("parent", 2, BIG).neighbors([2], "row"), "parent"),
    "parent negative": (lambda: altered("parent", 2, -2).neighbors([2], "column"), "parent"),
    "cell under a table": (lambda: altered("level", 1, 4).neighbors([2], "row"), "parent"),
    "row under nothing": (lambda: altered("parent", 1, -1).neighbors([2], "column"), "parent"),
    "row in a row": (lambda: altered("level", 5, 5).neighbors([2], "column"), "parent"),
    "triplet under a row": (lambda: altered("level", 7, 5).neighbors([8], "relation"), "parent"),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_malformed_calls(case: str) -> None:
    run, name = BAD_CALLS[case]
    with pytest.raises(ArrayError, match=name):
        run()
    assert split(GOOD.window(ONE, 9)) == [[1, 4, 8, 9, 2, 3, 5]]
    assert split(WITH.window(ONE, 9)) == [[1, 4, 8, 9, 2, 3]]


numbers = st.integers(-3, 12) | st.sampled_from([-BIG - 1, BIG, 2**32])
columns = st.lists(numbers, min_size=10, max_size=10).map(lambda v: np.array(v, np.int64))


@settings(max_examples=120)
@given(parent=columns, end=columns, order=columns, tombs=st.booleans(), live=st.integers(0, 2**64 - 1))
def test_no_column_leads_out_of_bounds(
    parent: np.ndarray, end: np.ndarray, order: np.ndarray, tombs: bool, live: int
) -> None:
    dead = (np.ones(10, np.uint8), np.array([live], np.uint64)) if tombs else ()
    stream = ops.Stream(GOOD.level, parent, end, order, np.array([0, 10]), *dead)
    calls = [
        lambda: stream.window(ONE, 10),
        lambda: stream.refresh(ONE, ([0, 1], [3]), 5),
        lambda: stream.delete([0, 4]).window(ONE, 3),
        *(lambda kind=kind: stream.neighbors(range(10), kind) for kind in KINDS),  # type: ignore[misc]
    ]
    for call in calls:
        with suppress(ArrayError):
            call()
