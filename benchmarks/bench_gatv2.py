"""gatv2 beside PyG's GATv2Conv without its projections: forward and backward, time and memory."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from measuring import FIGURES, THREADS, Figure, Measure

pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import torch
from gatv2_work import Step, steps

SIZES = [(8_000, 24_000, 2, 288), (20_000, 180_000, 2, 512)]
"""nodes, edges, heads, channels"""
IDS = [f"{nodes}-{edges}" for nodes, edges, *_ in SIZES]
FASTER, LEANER = 12.0, 10.0

Size = tuple[int, int, int, int]


@pytest.fixture(scope="module", params=SIZES, ids=IDS)
def size(request: pytest.FixtureRequest) -> Size:
    return request.param


@pytest.fixture(scope="module")
def both(size: Size) -> tuple[Step, Step]:
    return steps(*size)


def name(size: Size) -> str:
    nodes, edges, heads, channels = size
    return f"gatv2 {nodes // 1000}k {edges // 1000}k {heads}x{channels}"


def moved(size: Size) -> float:
    """Bytes: four rows of features per edge (a source forward, and backward; a destination and its gradient where
    sources add up theirs), seven per node (what is read and written once).
    """
    nodes, edges, heads, channels = size
    return 4.0 * heads * channels * (4 * edges + 7 * nodes)


def note(benchmark: Any, size: Size, who: str, goal: float | None, step: Step, rounds: int) -> None:
    benchmark.group = name(size)
    benchmark.pedantic(step, rounds=rounds, warmup_rounds=1)
    if benchmark.stats is not None:  # None: --benchmark-disable
        FIGURES.append(
            Figure(name(size), who, benchmark.stats.stats.median * 1e6, goal, 0.0 if goal else moved(size))
        )


def test_pyfast(both: tuple[Step, Step], size: Size, benchmark: Any) -> None:
    note(benchmark, size, f"pyfast, {THREADS} threads", None, both[0], 10)


def test_pyg(both: tuple[Step, Step], size: Size, measure: Measure) -> None:
    def compare() -> None:
        for found, expected in zip(both[0](), both[1](), strict=True):
            scale = float(expected.abs().max())
            torch.testing.assert_close(found.view(expected.shape), expected, rtol=0.0, atol=5e-6 * scale)

    measure.check(compare)
    note(measure.benchmark, size, "PyG", FASTER, both[1], 3)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's count of the peak")
def test_memory(size: Size) -> None:
    """Beyond the results, each in a process of its own. (Megabytes, where the table's others are microseconds.)"""
    for who, goal in (("pyfast", None), ("pyg", LEANER)):
        command = [sys.executable, Path(__file__).with_name("gatv2_work.py"), who, *map(str, size)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        FIGURES.append(Figure(f"{name(size)} MB", who, float(done.stdout.split()[0]), goal))
