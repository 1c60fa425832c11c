"""What is measured on, and how: the op on the whole batch, a peer pool by pool, medians."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
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


@dataclass(frozen=True)
class Figure:
    op: str
    who: str
    microseconds: float
    """per pool or request, median"""
    goal: float | None
    """how many times as fast as this peer the op shall be"""


FIGURES: list[Figure] = []
NOTES: list[str] = []
"""Lines below the table"""


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

    def op(self, op: str, threads: int, run: Callable[[], object], rounds: int = 200) -> None:
        self.benchmark.group = op
        self.benchmark.pedantic(run, rounds=rounds, warmup_rounds=min(rounds, 5))
        self._note(op, f"pyfast, {threads} thread{'s' if threads > 1 else ''}", POOLS, None)

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

    def _note(self, op: str, who: str, pools: int, goal: float | None) -> None:
        if self.benchmark.stats is not None:  # None: --benchmark-disable
            FIGURES.append(Figure(op, who, self.benchmark.stats.stats.median / pools * 1e6, goal))
