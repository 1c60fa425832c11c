"""What is measured on, and how: the op on the whole batch, a peer pool by pool, medians."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.sparse import csr_array

from pyfast.corpus import read
from pyfast.errors import IndexFormatError
from pyfast.ops.arrays import thread_count
from pyfast.retrieval import Index, build_index

POOLS, DOCUMENTS = 200, 50
THREADS = thread_count(None)


@dataclass(frozen=True)
class RealPools:
    """BM25's best 50 of HotpotQA's passages for each of 200 questions."""

    X: csr_array
    offsets: npt.NDArray[np.int64]
    docs: npt.NDArray[np.int32]
    """[200, 50]"""
    semantic: npt.NDArray[np.float32]
    """[200, 50]"""
    texts: list[list[str]]

    @property
    def bytes(self) -> int:
        """Of the rows that the pools name: a term id and a weight per entry, and where each row is."""
        lengths = np.diff(self.X.indptr)[self.docs.ravel()]
        return int(lengths.sum()) * 8 + self.docs.size * 12


@dataclass(frozen=True)
class Figure:
    op: str
    who: str
    microseconds: float
    """per pool or request, median"""
    goal: float | None
    """how many times as fast as this peer the op shall be"""
    moved: float = 0.0
    """bytes per pool that must be read and written, each once; 0: not counted"""


FIGURES: list[Figure] = []
NOTES: list[str] = []
"""RenderedPassages below the table"""


def open_index(request: pytest.FixtureRequest, source: Path) -> Index:
    """The index of a benchmark's corpus, built once and kept."""
    folder = request.config.cache.mkdir("benchmark-index") / f"{source.parent.name}-{source.stat().st_size}"
    try:
        return Index(folder)
    except IndexFormatError:  # not built yet, or by another version
        return build_index(read([source]), folder, overwrite=True)


class Measure:
    """Times an op on the batch, or a peer pool by pool, and notes the median per pool."""

    def __init__(self, benchmark: Any, refcheck: bool) -> None:
        self.benchmark = benchmark
        self.refcheck = refcheck

    def check(self, compare: Callable[[], None]) -> None:
        """Compare results, unless `--no-refcheck`."""
        if self.refcheck:
            compare()

    def op(
        self,
        op: str,
        threads: int,
        run: Callable[[], object],
        rounds: int = 200,
        moved: int = 0,
        batch: int = POOLS,
    ) -> None:
        """`moved`: bytes that the batch must read and write, for the roofline."""
        self.benchmark.group = op
        self.benchmark.pedantic(run, rounds=rounds, warmup_rounds=min(rounds, 5))
        self._note(op, f"pyfast, {threads} thread{'s' if threads > 1 else ''}", batch, None, moved)

    def peer_on_batch(self, op: str, who: str, goal: float, run: Callable[[], object]) -> None:
        """For a peer that takes the whole batch too."""
        self.benchmark.group = op
        self.benchmark.pedantic(run, rounds=200, warmup_rounds=5)
        self._note(op, who, POOLS, goal)

    def peer(self, op: str, who: str, goal: float, run: Callable[[int], object], pools: int = POOLS) -> None:
        self.benchmark.group = op
        order = iter(range(pools))
        run(0)
        self.benchmark.pedantic(run, setup=lambda: ((next(order),), {}), rounds=pools)
        self._note(op, who, 1, goal)

    def _note(self, op: str, who: str, pools: int, goal: float | None, moved: int = 0) -> None:
        if self.benchmark.stats is not None:  # None: --benchmark-disable
            each = self.benchmark.stats.stats.median / pools * 1e6
            FIGURES.append(Figure(op, who, each, goal, moved / pools))


def bandwidth() -> float:
    """GB/s of memory, read and written, by copying on all threads: the roof that no op gets over."""
    size = 1 << 27
    source, target = np.ones(size, np.uint8), np.empty(size, np.uint8)
    parts = [slice(size * t // THREADS, size * (t + 1) // THREADS) for t in range(THREADS)]
    times = []
    with ThreadPoolExecutor(THREADS) as threads:
        for _ in range(20):
            began = perf_counter()
            list(threads.map(lambda part: np.copyto(target[part], source[part]), parts))
            times.append(perf_counter() - began)
    return 2 * size / median(times) / 1e9
