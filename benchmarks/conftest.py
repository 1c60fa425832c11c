"""Real pools, the same for every op and peer; and the table of what was measured.

`python -m pytest benchmarks --benchmark-only`. Peers are timed in the same run, one pool at a time, as their
users call them; ops get the whole batch, as the engine calls them. `--save-results` keeps the numbers.
"""

from __future__ import annotations

import json
import platform
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_peers import RealGraphs, real_graphs
from measuring import DOCUMENTS, FIGURES, NOTES, POOLS, THREADS, Measure, RealPools, bandwidth, open_index
from scipy.sparse import csr_array

from pyfast.retrieval import Index


@pytest.fixture
def measure(benchmark: Any, request: pytest.FixtureRequest) -> Measure:
    return Measure(benchmark, request.config.getoption("refcheck"))


@pytest.fixture(scope="session")
def index(data: Path, request: pytest.FixtureRequest) -> Index:
    """HotpotQA's passages."""
    return open_index(request, data / "hotpotqa" / "corpus.jsonl")


@pytest.fixture(scope="session")
def questions(data: Path) -> list[str]:
    with (data / "hotpotqa" / "questions.jsonl").open(encoding="utf-8") as file:
        return [json.loads(line)["question"] for line in file]


@pytest.fixture(scope="session")
def real(index: Index, questions: list[str]) -> RealPools:
    found = [pool for pool in index.search(questions, DOCUMENTS) if len(pool) == DOCUMENTS][:POOLS]
    assert len(found) == POOLS
    # In memory, and with indices as narrow as SciPy likes them best.
    narrow = (index.X.data.copy(), index.X.indices.astype(np.int32), index.X.indptr.astype(np.int32))
    X = csr_array(narrow, shape=index.X.shape)
    X.has_canonical_format = True
    return RealPools(
        X,
        np.arange(POOLS + 1) * DOCUMENTS,
        np.stack([pool.passages for pool in found]),
        np.stack([pool.scores for pool in found]),
        [[index.text(passage) for passage, _ in pool] for pool in found],
    )


@pytest.fixture(scope="session")
def graphs(real: RealPools) -> RealGraphs:
    return real_graphs(real)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("pyfast")
    group.addoption("--refcheck", action="store_true", default=True, help="compare results first (the default)")
    group.addoption("--no-refcheck", action="store_false", dest="refcheck", help="only measure")
    group.addoption("--save-results", action="store_true", help="write benchmarks/results/cpu.json")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if not (FIGURES or NOTES):
        return
    best = {op: min(f.microseconds for f in FIGURES if f.op == op and f.goal is None) for op in ops_measured()}
    terminalreporter.write_sep("=", f"medians; ops: {POOLS} pools of {DOCUMENTS} documents, {THREADS} threads")
    terminalreporter.write_line(f"{'op':28} {'':24} {'us each':>10} {'ratio':>8} {'goal':>7}")
    for f in sorted(FIGURES, key=lambda f: (f.op, f.goal or 0.0)):
        ratio = f"{f.microseconds / best[f.op]:7.0f}x" if f.goal and f.op in best else ""
        goal = f"{f.goal:6.0f}x" if f.goal else ""
        terminalreporter.write_line(f"{f.op:28} {f.who:24} {f.microseconds:10.1f} {ratio:>8} {goal:>7}")
    for note in NOTES:
        terminalreporter.write_line(note)
    counted = [f for f in FIGURES if f.moved and f.microseconds == best[f.op]]
    if counted:
        roof = bandwidth()
        terminalreporter.write_sep("=", f"roofline: memory copies at {roof:.1f} GB/s on {THREADS} threads")
        terminalreporter.write_line(f"{'op':28} {'kB each':>10} {'GB/s':>8} {'of the roof':>12}")
        for f in counted:
            rate = f.moved / f.microseconds / 1e3
            terminalreporter.write_line(f"{f.op:28} {f.moved / 1e3:10.1f} {rate:8.2f} {rate / roof:12.0%}")
    if config.getoption("save_results"):
        save(Path(__file__).parent / "results" / "cpu.json")


def ops_measured() -> list[str]:
    return list(dict.fromkeys(f.op for f in FIGURES if f.goal is None))


def save(path: Path) -> None:
    """The figures, and on what they were measured."""
    names = ("pyfast", "numpy", "scipy", "scikit-learn", "networkx", "igraph")
    facts = {
        "processor": processor(),
        "threads": THREADS,
        "pools": POOLS,
        "documents": DOCUMENTS,
        "python": platform.python_version(),
        "versions": {name: version(name) for name in names},
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({**facts, "figures": [asdict(f) for f in FIGURES]}, indent=1) + "\n")


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
