"""Malformed input on a device: the fault that it is, in the status word; never an access out of bounds."""

from collections.abc import Callable
from typing import Any

import device_ops
import numpy as np
import pytest
from device_ops import Attention, Device, InTurns, Malformed, TwoWays
from emulated import Argument, Array, CallError, Driver, InOut
from gatv2_problems import random_layer
from graph_problems import graph, random_matrix
from hypothesis import strategies as st
from pool_problems import random_problem
from test_hseq_stream import batch, lists

from conftest import Way

POOLS = random_problem([0, 6, 3], terms=30, per_row=10)
GRAPHS = graph([random_matrix(n, 0.5, seed=n) for n in (6, 3)])
STREAM, CURSORS = batch(3000, 4)
CHOSEN = lists([[3, 5], [], [7], [8, 8]])
LAYER = random_layer(6, 6, 20, 2, 5)
HEADS = Attention(LAYER.x_src, LAYER.x_dst, LAYER.indptr, LAYER.indices, LAYER.att, loops=True)
SHARES = np.full((HEADS.edges, 2), 0.25, np.float32)

TOKENS = (
    np.ones((3, 4), np.float32),
    np.array([0, 1, 3]),
    np.ones((5, 4), np.float32),
    np.array([0, 2, 5]),
    np.array([[0, 0], [1, 1], [0, 1]]),
)
CODES = np.full((5, 4), 7, np.int8)

Run = Callable[[Device], Any]
OPS: dict[str, Run] = {
    "weighted_degree": lambda d: device_ops.weighted_degree(d, POOLS.X, POOLS.offsets, POOLS.docs),
    "degree_rank": lambda d: device_ops.degree_rank(
        d, POOLS.X, POOLS.offsets, POOLS.docs, POOLS.semantic, "dot", 0.85
    ),
    "graph_rank": lambda d: device_ops.graph_rank(d, POOLS.semantic, POOLS.semantic, POOLS.offsets, 0.85),
    "evidence_graph": lambda d: device_ops.evidence_graph(
        d, POOLS.X, POOLS.offsets, POOLS.docs, top_k=2, mask_terms=POOLS.question_terms
    ),
    "maxsim": lambda d: device_ops.maxsim(d, *TOKENS),
    "maxsim_codes": lambda d: device_ops.maxsim(d, *TOKENS[:2], CODES, *TOKENS[3:], np.ones(5, np.float32)),
    "pagerank": lambda d: device_ops.pagerank(d, GRAPHS, 0.85, np.ones(9, np.float32)),
    "window": lambda d: device_ops.window(d, STREAM, CURSORS, 5),
    "refresh": lambda d: device_ops.refresh(d, STREAM, CURSORS, CHOSEN, 3),
    "gatv2": lambda d: device_ops.gatv2(d, HEADS),
    "gatv2_backward": lambda d: device_ops.gatv2_backward(d, HEADS, SHARES, HEADS.x_dst),
}


class Spoiled:
    """A device that gets other arrays than the op was given: some numbers changed, all lengths as they were."""

    def __init__(self, device: Device, changes: list[tuple[int, int, float]]) -> None:
        self.device = device.driver if isinstance(device, TwoWays | InTurns) else device
        self.changes = changes

    @property
    def driver(self) -> Driver:
        return self.device.driver

    def call(self, name: str, *arguments: Argument) -> list[Array]:
        arrays = [i for i, a in enumerate(arguments) if isinstance(a, np.ndarray) and a.size]
        given = list(arguments)
        for which, place, value in self.changes:
            i = arrays[which % len(arrays)]
            changed = np.array(given[i])
            changed.flat[place % changed.size] = fitting(value, changed.dtype)
            given[i] = changed
        return self.device.call(name, *given)


class Shortened(Spoiled):
    """A device that gets an array that is shorter than the op was given."""

    def __init__(self, device: Device, which: int, length: int) -> None:
        super().__init__(device, [])
        self.which, self.length = which, length

    def call(self, name: str, *arguments: Argument) -> list[Array]:
        arrays = [i for i, a in enumerate(arguments) if isinstance(a, np.ndarray) and a.size]
        given = list(arguments)
        i = arrays[self.which % len(arrays)]
        given[i] = np.ascontiguousarray(given[i]).ravel()[: self.length]
        return self.device.call(name, *given)


def fitting(value: float, dtype: Any) -> Any:
    if dtype.kind == "f":
        return dtype.type(value) if abs(value) < 1e38 or not np.isfinite(value) else dtype.type(1e38)
    limits = np.iinfo(dtype)
    return int(min(max(value if np.isfinite(value) else -1, limits.min), limits.max))


VALUES = [-1, 0, 1, 2, 7, 63, 64, 200, 2**31 - 1, -(2**31), 2.0**62, -(2.0**62), np.nan, np.inf, -np.inf, 1e30]
CHANGE = st.tuples(st.integers(0, 99), st.integers(0, 999), st.sampled_from(VALUES))
CHANGES = st.lists(CHANGE, min_size=1, max_size=3)


@pytest.mark.parametrize("op", OPS)
def test_any_numbers_are_refused_or_harmless(way: Way, op: str) -> None:
    """A fault that the sanitizers or the interpreter find would be raised here."""

    if way.examples < 10:
        pytest.skip("takes the interpreter some time: see its long run")

    def check(changes: list[tuple[int, int, float]]) -> None:
        try:
            OPS[op](Spoiled(way.device, changes))
        except (Malformed, CallError):
            OPS[op](way.device)  # and the next call is as ever

    way.every(CHANGES, check)


@pytest.mark.parametrize("op", OPS)
def test_arrays_that_are_too_short_are_refused_or_harmless(way: Way, op: str) -> None:
    if way.examples < 10:
        pytest.skip("takes the interpreter some time: see its long run")
    refused = 0
    for which in range(9):
        for length in (0, -1):
            try:
                OPS[op](Shortened(way.device, which, length))
            except (Malformed, CallError):
                refused += 1
    assert refused > 2


# Which of the arrays, as the op takes them, which place, what it becomes; and the fault that it is.
FAULTS = [
    ("weighted_degree", (0, 3, 10**6), "rows"),
    ("weighted_degree", (0, 3, -5), "rows"),
    ("weighted_degree", (1, 3, 30), "rows"),
    ("weighted_degree", (1, 3, -1), "rows"),
    ("weighted_degree", (2, 5, -0.5), "weights"),
    ("weighted_degree", (2, 5, np.nan), "weights"),
    ("weighted_degree", (2, 5, 1e30), "weights"),
    ("weighted_degree", (3, 1, 7), "offsets"),
    ("weighted_degree", (3, 3, 8), "offsets"),
    ("weighted_degree", (4, 0, 10**6), "documents"),
    ("weighted_degree", (4, 0, -1), "documents"),
    ("degree_rank", (5, 2, np.inf), "scores"),
    ("graph_rank", (0, 2, np.nan), "scores"),
    ("graph_rank", (2, 1, 8), "offsets"),
    ("evidence_graph", (6, 1, 30), "masked"),
    ("evidence_graph", (4, 8, -3), "documents"),
    ("maxsim", (0, 5, np.inf), "scores"),
    ("maxsim", (1, 1, 4), "offsets"),
    ("maxsim", (2, 9, np.nan), "scores"),
    ("maxsim", (3, 2, 6), "offsets"),
    ("maxsim", (4, 2, 2), "pairs"),
    ("maxsim_codes", (3, 4, -1.0), "scores"),
    ("maxsim_codes", (5, 1, -1), "pairs"),
    ("pagerank", (2, 0, 6), "edges"),
    ("pagerank", (3, 0, -1.0), "edge_weights"),
    ("pagerank", (4, 0, -1.0), "scores"),
    ("pagerank", (1, 2, 99), "offsets"),
    ("window", (0, 7, 10**6), "segments"),  # the window reads the stream's order there
    ("window", (4, 0, -1), "places"),
    ("window", (4, 1, 10**6), "places"),
    ("window", (8, 0, 3000), "segments"),
    ("refresh", (10, 0, -2), "segments"),
    ("gatv2", (1, 4, 6), "sources"),
    ("gatv2", (0, 3, -1), "offsets"),
    ("gatv2_backward", (1, 4, -7), "sources"),
]


NAMES = [f"{op} {fault}" for op, _, fault in FAULTS]


@pytest.mark.parametrize(("op", "change", "fault"), FAULTS, ids=NAMES)
def test_each_fault_is_named(emulated: TwoWays, op: str, change: tuple[int, int, float], fault: str) -> None:
    with pytest.raises(Malformed) as found:
        OPS[op](Spoiled(emulated, [change]))
    assert fault in str(found.value).split()


@pytest.mark.parametrize("words", [{0: 0, 1: 0}, {0: 0, 15: 2.0**47}], ids=["no bit below", "beyond the words"])
def test_tombstones_that_contradict_each_other(emulated: TwoWays, words: dict[int, float]) -> None:
    """No place of the first word is live, so the window asks the upper word, the last, where the next one is."""
    with pytest.raises(Malformed, match="tombstones"):
        OPS["window"](Spoiled(emulated, [(3, word, value) for word, value in words.items()]))


def test_a_status_word_with_faults_stops_the_next_op(emulated: TwoWays) -> None:
    """It leaves its outputs as they were."""
    score = np.full(len(POOLS.semantic), 7, np.float32)
    arguments = [POOLS.semantic, POOLS.semantic, np.asarray(POOLS.offsets, np.int64), 0.5]
    status = InOut(np.array([4], np.int32))
    after, word = emulated.call("graph_rank", *arguments, InOut(score), status, np.zeros(0, np.uint8))
    assert word[0] == 4
    np.testing.assert_array_equal(after, score)
