"""Does structure find more? Recall of the list, of GraphRank, of bridge_rank, and of it with bridge_expand.

    python benchmarks/recall.py                                         # the benchmark sets under PYFAST_DATA
    python benchmarks/recall.py --corpus C.jsonl --questions Q.jsonl    # any other, in the same layout

One pool of `--pool` passages per question; a passage counts for the document that it comes from, each document
once. Recall@k is the share of a question's gold documents among the first k, averaged over questions that
name any: `supporting`, or for HybridQA, whose supporting lists are string matches, the one table that is certain.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from pyfast import ops
from pyfast.corpus import read
from pyfast.ops.arrays import stack
from pyfast.retrieval import Index, Pool, build_index
from pyfast.retrieval.pools import split, stack_pools
from pyfast.retrieval.rerank import expand

Array = np.ndarray[Any, Any]
DATA = Path(os.environ.get("PYFAST_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
SETS = ("hotpotqa", "musique", "2wiki", "hybridqa", "nq")
METHODS = ("list", "graph_rank", "bridge_rank", "bridge_rank + expand")


def gold_questions(path: Path) -> Iterator[tuple[str, set[str]]]:
    """(question, gold uris) of the questions that name their evidence."""
    for line in path.read_text(encoding="utf-8").splitlines():
        question: dict[str, Any] = json.loads(line)
        table = question.get("table_id")
        gold = {table} if table else set(question.get("supporting") or ())
        if gold:
            yield question["question"], gold


def rankings(index: Index, questions: list[str], pools: list[Pool]) -> dict[str, tuple[Array, Array, Array]]:
    """For each method the pools that it ranks: (offsets, passages, scores)."""
    offsets, passages, semantic = stack_pools(pools)
    terms = stack([index.question_terms(question) for question in questions], np.int32)
    degree = ops.weighted_degree(index.X, offsets, passages)
    bridged = ops.bridge_rank(index.X, offsets, passages, semantic, terms)
    wider = expand(index, offsets, passages, semantic, terms)
    return {
        "list": (offsets, passages, semantic),
        "graph_rank": (offsets, passages, ops.graph_rank(semantic, degree, offsets)),
        "bridge_rank": (offsets, passages, bridged),
        "bridge_rank + expand": (*wider[:2], ops.bridge_rank(index.X, *wider, terms)),
    }


def recalls(index: Index, path: Path, size: int, cuts: list[int]) -> tuple[int, dict[str, list[float]]]:
    """(number of questions, per method the mean recall at each cut)."""
    asked = list(gold_questions(path))
    questions = [question for question, _ in asked]
    found: dict[str, list[float]] = {}
    for method, ranked in rankings(index, questions, index.search(questions, size)).items():
        rows = []
        for (_, gold), pool in zip(asked, split(*ranked), strict=True):
            best = pool.passages[np.argsort(-pool.scores, kind="stable")]
            uris = list(dict.fromkeys(index.corpus.uri(index.corpus.source[index.passages[u]]) for u in best))
            rows.append([len(gold & set(uris[:k])) / len(gold) for k in cuts])
        found[method] = np.mean(rows, axis=0).tolist()
    return len(asked), found


def main(
    corpus: Annotated[Path | None, typer.Option(help="A corpus file; with --questions.")] = None,
    questions: Annotated[Path | None, typer.Option(help="Its questions.")] = None,
    pool: Annotated[int, typer.Option(help="Passages retrieved per question.")] = 100,
    at: Annotated[str, typer.Option(help="Where to cut the rankings.")] = "5,10,20,50",
) -> None:
    """Print the table."""
    cuts = [int(k) for k in at.split(",")]
    if corpus and questions:
        sets = [(questions.stem, corpus, questions)]
    else:
        sets = [(name, DATA / name / "corpus.jsonl", DATA / name / "questions.jsonl") for name in SETS]
    table = Table("set", "questions", "method", *(f"recall@{k}" for k in cuts))
    for name, corpus_file, question_file in sets:
        if not corpus_file.is_file():
            raise typer.BadParameter(f"{corpus_file} is not there; set PYFAST_DATA")
        with tempfile.TemporaryDirectory() as folder:
            index = build_index(read([corpus_file]), Path(folder) / "index")
            count, found = recalls(index, question_file, pool, cuts)
        for method in METHODS:
            cells = (f"{value:.3f}" for value in found[method])
            first = (name, str(count)) if method == METHODS[0] else ("", "")
            table.add_row(*first, method, *cells, end_section=method == METHODS[-1])
    Console(width=100).print(table)


if __name__ == "__main__":
    typer.run(main)
