"""maxsim: HotpotQA's questions against BM25's best 30, int8 at 384 dimensions, beside NumPy, torch and lateweave.

Vectors are those of the late-interaction model of the extra `rerank`, encoded once and kept. The op reads codes
out of a mapped file, made as an index makes them. Peers get the vectors as float32, not rounded, those of each
question's candidates in one piece of memory.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from measuring import NOTES, Measure
from threadpoolctl import threadpool_limits

from pyfast import _native, ops
from pyfast.ops.arrays import ends
from pyfast.retrieval import Index
from pyfast.retrieval.vectors.encoders import OnnxModel, packaged_model, rotated
from pyfast.retrieval.vectors.passage_vectors import coded

lateweave = pytest.importorskip("lateweave", reason="the extra bench brings it")

QUESTIONS, CANDIDATES, FIRST = 200, 30, 10
Array = npt.NDArray[Any]


class Work:
    """Questions, candidates, and the vectors of both."""

    def __init__(self, index: Index, questions: list[str], folder: Path) -> None:
        pools = [pool for pool in index.search(questions, CANDIDATES) if len(pool) == CANDIDATES][:QUESTIONS]
        chosen = np.stack([pool.passages for pool in pools])
        passages, places = np.unique(chosen, return_inverse=True)
        self.places = places.reshape(chosen.shape)
        path = folder / f"maxsim-{len(passages)}.npz"
        if not path.is_file():
            model = OnnxModel(packaged_model("colbert"))
            texts = [*questions[:QUESTIONS], *(index.text(int(passage)) for passage in passages)]
            made = model.run(texts)
            unit = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in made]
            np.savez(path, sizes=np.array([len(each) for each in unit]), vectors=np.concatenate(unit))
        with np.load(path) as stored:
            cuts = np.cumsum(stored["sizes"])[:-1]
            unit = np.split(stored["vectors"].astype(np.float32), cuts)
        self.queries, self.documents = unit[:QUESTIONS], unit[QUESTIONS:]
        self.rotated = np.concatenate([rotated(each) for each in self.queries])
        codes, self.scales = coded(np.concatenate([rotated(each) for each in self.documents]))
        np.save(folder / "maxsim-codes.npy", codes)
        self.codes = np.load(folder / "maxsim-codes.npy", mmap_mode="r")
        self.offsets = ends(self.documents)
        self.pairs = np.array([(q, d) for q, row in enumerate(self.places) for d in row.tolist()])
        self.gathered = [[self.documents[d] for d in row.tolist()] for row in self.places]
        self.packed = [np.concatenate(each) for each in self.gathered]

    def op(self) -> Array:
        query = self.rotated, ends(self.queries)
        found = ops.maxsim(*query, self.codes, self.offsets, self.pairs, self.scales, threads=1)
        return found.reshape(self.places.shape)

    def cut(self, dimensions: int) -> tuple[Array, Array]:
        """The scores of the first dimensions alone, as an index keeps them in int8 and in float32."""
        queries, documents = (
            [each[:, :dimensions] / np.linalg.norm(each[:, :dimensions], axis=1, keepdims=True) for each in some]
            for some in (self.queries, self.documents)
        )
        codes, scales = coded(np.concatenate([rotated(each) for each in documents]))
        asked = np.concatenate([rotated(each) for each in queries])
        rounded = ops.maxsim(asked, ends(queries), codes, self.offsets, self.pairs, scales)
        given = np.concatenate(queries), ends(queries), np.concatenate(documents), self.offsets
        return rounded.reshape(self.places.shape), ops.maxsim(*given, self.pairs).reshape(self.places.shape)

    def numpy(self, q: int) -> Array:
        products = self.queries[q] @ self.packed[q].T
        scores: Array = np.maximum.reduceat(products, ends(self.gathered[q])[:-1], axis=1).sum(axis=0)
        return scores

    def torch(self, q: int) -> Array:
        tokens = torch.from_numpy(self.packed[q])
        products = torch.from_numpy(self.queries[q]) @ tokens.T
        cuts = ends(self.gathered[q]).tolist()
        best = [products[:, a:b].amax(dim=1).sum() for a, b in pairwise(cuts)]
        return torch.stack(best).numpy()

    def lateweave(self, q: int) -> Array:
        lengths = np.array([len(each) for each in self.gathered[q]])
        scores: Array = lateweave.maxsim_scores_packed(self.queries[q], self.packed[q], lengths, threads=1)
        return scores


@pytest.fixture(scope="module")
def work(index: Index, questions: list[str], request: pytest.FixtureRequest) -> Work:
    return Work(index, questions, request.config.cache.mkdir("benchmark-vectors"))


def same_first(ours: Array, theirs: Array) -> float:
    """The share of questions that have the same first ten."""
    first = [np.argsort(-scores, axis=1, kind="stable")[:, :FIRST] for scores in (ours, theirs)]
    return float(np.mean([set(a) == set(b) for a, b in zip(*first, strict=True)]))


NAME = "maxsim int8, 384, 30 each"


def test_pyfast(work: Work, measure: Measure) -> None:
    measure.op(NAME, 1, work.op, rounds=20, batch=QUESTIONS)


@pytest.mark.parametrize("peer", ["numpy", "torch", "lateweave"])
def test_peers(work: Work, measure: Measure, peer: str) -> None:
    run = getattr(work, peer)

    def compare() -> None:
        ours = work.op()
        theirs = np.stack([run(q) for q in range(QUESTIONS)])
        same = same_first(ours, theirs)
        note = (
            f"{NAME}, {_native.maxsim_level()}, beside {peer}: {same:.1%} of questions have the same first {FIRST}"
        )
        NOTES.append(f"{note}; the largest difference of a score is {np.abs(ours - theirs).max():.4f}")
        assert same >= 0.98, note
        if peer == "numpy":
            NOTES.append(f"{NAME.replace('384', '128')}, beside float32: {same_first(*work.cut(128)):.1%}")

    torch.set_num_threads(1)
    with threadpool_limits(1):
        measure.check(compare)
        measure.peer(NAME, peer, 4, run, pools=QUESTIONS)
