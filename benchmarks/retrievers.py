"""What the retrievers cost beside the libraries that they call: encode and search the same questions.

    python benchmarks/retrievers.py                        # HotpotQA of PYFAST_DATA, 1,000 passages
    python benchmarks/retrievers.py --index FOLDER         # keeps the index, which takes minutes

The lists are compared first. A peer is what a program without pyfast would write: SentenceTransformer and
`semantic_search`; SparseEncoder and its `similarity`; bm25s beside the dense list, and reciprocal ranks in Python;
onnxruntime and torch for late interaction, over float32 vectors in memory, with the candidates that pyfast takes.
Processor time on one core; the sides take turns, with other questions in each round.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import process_time
from typing import Annotated

import numpy as np
import onnxruntime
import torch
import typer
from bm25s_peer import asked_terms, bm25s_of
from rich.console import Console
from rich.table import Table
from sentence_transformers import SentenceTransformer, SparseEncoder, util
from tokenizers import Tokenizer

import pyfast
from pyfast.ops.arrays import stack
from pyfast.retrieval import Index
from pyfast.retrieval.pools import RANK_CONSTANT, split, stack_pools
from pyfast.retrieval.rerank import expand
from pyfast.retrieval.vector_retrievers import FUSED
from pyfast.retrieval.vectors.embeddings import find_embedder
from pyfast.retrieval.vectors.encoders import packaged_model, rotated

DATA = Path(os.environ.get("PYFAST_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
K, SAME = 10, 0.97
Lists = list[list[int]]
Peer = Callable[[Sequence[str]], Lists]


def dense(index: Index, k: int = K) -> Peer:
    """sentence-transformers."""
    model = SentenceTransformer(str(find_embedder("all-MiniLM-L6-v2")), device="cpu", local_files_only=True)
    vectors = torch.from_numpy(np.array(index.whole.vectors["dense"]))

    def search(questions: Sequence[str]) -> Lists:
        encoded = model.encode(list(questions), convert_to_tensor=True, show_progress_bar=False)
        return [
            [int(hit["corpus_id"]) for hit in hits] for hits in util.semantic_search(encoded, vectors, top_k=k)
        ]

    return search


def sparse(index: Index) -> Peer:
    """SparseEncoder of sentence-transformers."""
    model = SparseEncoder(index.manifest["parameters"]["vectors"]["sparse"]["model"], local_files_only=True)
    vectors = torch.from_numpy(index.whole.vectors["sparse"].toarray()).to_sparse()  # type: ignore[union-attr]

    def search(questions: Sequence[str]) -> Lists:
        scores = model.similarity(model.encode(list(questions), show_progress_bar=False), vectors)
        places: Lists = scores.topk(K).indices.tolist()
        return places

    return search


def hybrid(index: Index) -> Peer:
    """bm25s and sentence-transformers, fused."""
    near, words = dense(index, FUSED), bm25s_of(index, "numpy")

    def search(questions: Sequence[str]) -> Lists:
        asked = asked_terms(index, questions)
        found, _ = words.retrieve(asked, k=FUSED, show_progress=False)
        fused = []
        for lists in zip(found.tolist(), near(questions), strict=True):
            sums: Counter[int] = Counter()
            for some in lists:
                for rank, passage in enumerate(some, 1):
                    sums[passage] += 1 / (RANK_CONSTANT + rank)  # type: ignore[assignment]
            fused.append([passage for passage, _ in sums.most_common(K)])
        return fused

    return search


def late(index: Index) -> Peer:
    """onnxruntime and torch."""
    folder = packaged_model("colbert")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options)
    names = [one.name for one in session.get_inputs()]
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    (tokens,) = index.whole.vectors["late"].pieces  # type: ignore[union-attr]
    vectors = torch.from_numpy(rotated(tokens.codes * tokens.scales[:, None]))  # rotated twice: as the model's
    passages = [vectors[begin:end] for begin, end in pairwise(tokens.offsets.tolist())]

    def search(questions: Sequence[str]) -> Lists:
        terms = stack([index.question_terms(question) for question in questions], np.int32)
        candidates = split(*expand(index, *stack_pools(index.search(questions, FUSED)), terms))
        found = []
        for question, some in zip(questions, (pool.passages.tolist() for pool in candidates), strict=True):
            one = tokenizer.encode(question)
            given = {"input_ids": one.ids, "attention_mask": one.attention_mask, "token_type_ids": one.type_ids}
            hidden, *_ = session.run(None, {name: np.array([given[name]], np.int64) for name in names})
            query = torch.nn.functional.normalize(torch.from_numpy(hidden[0, :, : vectors.shape[1]]), dim=1)
            packed = torch.cat([passages[u] for u in some])
            best = (query @ packed.T).split([len(passages[u]) for u in some], dim=1)
            scores = torch.stack([each.amax(dim=1).sum() for each in best])
            found.append([some[at] for at in scores.topk(min(K, len(some))).indices.tolist()])
        return found

    return search


PEERS: dict[str, Callable[[Index], Peer]] = {"dense": dense, "sparse": sparse, "hybrid": hybrid, "late": late}


def built(folder: Path, passages: int) -> Path:
    """The folder of an index of the corpus's first passages, with vectors of each kind."""
    if not folder.exists():
        (package,) = find_spec("cognition").submodule_search_locations  # type: ignore[union-attr,misc]
        with (DATA / "hotpotqa" / "corpus.jsonl").open() as file:
            documents = [json.loads(line) for line, _ in zip(file, range(passages), strict=False)]
        pyfast.build_index(documents, folder, vectors=["dense", f"sparse:{package}/model", "late"])
    return folder


def measured(folder: Path, name: str, questions: Sequence[str], rounds: int) -> list[str]:
    """The cells of a row."""
    peer, index = PEERS[name](pyfast.open_index(folder)), pyfast.open_index(folder, name)
    began = process_time()
    index.search("Who discovered Titan?", K)
    first = process_time() - began

    def ours(questions: Sequence[str]) -> Lists:
        return [pool.passages.tolist() for pool in index.search(questions, K)]

    same = float(np.mean([set(a) == set(b) for a, b in zip(ours(questions), peer(questions), strict=True)]))
    assert same >= SAME, f"{name}: {same:.1%} of the questions have the same first {K}"
    times: dict[str, list[float]] = defaultdict(list)
    for number in range(rounds):
        others = [f"{question} {number}" for question in questions]  # an open index knows what it has encoded
        for who, run in (("pyfast", ours), ("library", peer)):
            began = process_time()
            run(others)
            times[who].append((process_time() - began) / len(questions) * 1e3)
    ratio = median(a / b for a, b in zip(times["pyfast"], times["library"], strict=True))
    each = [f"{median(times[who]):.2f}" for who in ("pyfast", "library")]
    return [*each, f"{ratio:.2f}", f"{same:.1%}", f"{first * 1e3:.0f} ms"]


def main(
    passages: int = 1_000,
    rounds: int = 5,
    index: Annotated[Path | None, typer.Option(help="A folder that keeps the index.")] = None,
    only: Annotated[list[str] | None, typer.Option("--retriever", help="Repeatable.")] = None,
) -> None:
    """Print a row for each retriever."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    with (DATA / "hotpotqa" / "questions.jsonl").open() as file:
        questions = [json.loads(line)["question"] for line in file]
    table = Table("retriever", "pyfast, ms a question", "library", "ratio", f"same first {K}", "first question")
    with tempfile.TemporaryDirectory() as scratch:
        folder = built(index or Path(scratch) / "index", passages)
        for name in only or PEERS:
            table.add_row(name, *measured(folder, name, questions, rounds))
    Console(width=100).print(table)


if __name__ == "__main__":
    typer.run(main)
