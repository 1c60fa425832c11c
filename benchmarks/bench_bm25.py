"""bm25: the 20 best of HybridQA's passages for each of 200 questions, beside bm25s."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from bm25s_peer import asked_terms, bm25s_of, counted
from measuring import POOLS, THREADS, Measure, open_index

from pyfast import ops
from pyfast.ops.arrays import stack
from pyfast.retrieval import Index

K = 20


@pytest.fixture(scope="module")
def searched(data: Path, request: pytest.FixtureRequest) -> tuple[Index, list[list[int]]]:
    index = open_index(request, data / "hybridqa" / "corpus.jsonl")
    with (data / "hybridqa" / "questions.jsonl").open(encoding="utf-8") as file:
        questions = [json.loads(line)["question"] for line in file][:POOLS]
    return index, asked_terms(index, questions)


@pytest.mark.parametrize("threads", sorted({1, THREADS}))
def test_pyfast(searched: tuple[Index, list[list[int]]], measure: Measure, threads: int) -> None:
    index, queries = searched
    parts, asked = counted(index), stack(queries, np.int32)
    name = f"bm25, {len(index.passages):,}"
    measure.op(name, threads, lambda: ops.bm25(parts, *asked, K, threads=threads), rounds=30)


@pytest.mark.parametrize("backend", ["numba", "numpy"])
def test_bm25s(searched: tuple[Index, list[list[int]]], measure: Measure, backend: str) -> None:
    index, queries = searched
    engine, parts = bm25s_of(index, backend), counted(index)
    run = lambda: engine.retrieve(queries, k=K, n_threads=THREADS, show_progress=False)  # noqa: E731

    def compare() -> None:
        _, _, found = ops.bm25(parts, *stack(queries, np.int32), K)
        np.testing.assert_allclose(found, run()[1].ravel(), rtol=1e-5)

    measure.check(compare)
    measure.peer_on_batch(f"bm25, {len(index.passages):,}", f"bm25s, {backend}", 1, run)
