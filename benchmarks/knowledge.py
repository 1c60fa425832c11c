"""The knowledge store and SubQRAG on real data, with a scripted model in place of an LLM: what is found, how fast.

    python benchmarks/knowledge.py metaqa FOLDER             # the whole graph; FOLDER keeps index and store
    python benchmarks/knowledge.py musique FOLDER --limit 60 # the passages around 60 questions

metaqa: the gold paths are followed by reading facts (tests/gold_paths.py): how many answer sets are found; how
many searches a second, beside encoding all facts for each sub-question. musique: the published decompositions: how
many of the gold passages the graph memory rests on, beside BM25's first as many.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter, defaultdict
from itertools import islice
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Annotated, Any

import numpy as np
import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from gold_paths import FollowsDecompositions, FollowsGoldPaths, closure

from pyfast.corpus import TextDocument, read
from pyfast.engine import Question, answer_all
from pyfast.knowledge import Knowledge, Session, Writer, change, has_knowledge, open_knowledge, read_straight
from pyfast.knowledge.recall import recall
from pyfast.knowledge.session import Learned
from pyfast.llm import Backend
from pyfast.retrieval import Index, build_index
from pyfast.retrieval.embeddings import BATCH, Embedder
from pyfast.systems import load_system

DATA = Path(os.environ.get("PYFAST_DATA") or Path(__file__).parents[2] / "shared/data")
app = typer.Typer()
_Folder = Annotated[Path, typer.Argument()]


@app.command()
def metaqa(folder: _Folder, films: int | None = None) -> None:
    """Gold paths over 133,582 triples, or over those of the first films and the questions that start there."""
    questions = [json.loads(line) for line in (DATA / "metaqa/questions.jsonl").read_text().splitlines()]
    if not folder.exists():
        build_index(islice(read([DATA / "metaqa/corpus.jsonl"]), films), folder)
    store = opened(Index(folder))
    known = set(store.entities)
    questions = [question for question in questions if question["topic_entity"] in known]
    questions = [question for question in questions if closure(store, question)]
    for named in ("4", "0"):
        records = asked(Session(Index(folder), store), FollowsGoldPaths(questions), questions, named=named)
        found: dict[str, list[bool]] = defaultdict(list)
        for question, record in zip(questions, records, strict=True):
            answers = {name for step in record["trace"]["path"][-1] for name in step["answers"]}
            found[question["type"]].append(answers == closure(store, question))
        shares = ", ".join(f"{kind}: {sum(right)} of {len(right)}" for kind, right in found.items())
        print(f"named={named}: the answer set of the gold path found: {shares}")
    paths = [step["question"] for record in records for steps in record["trace"]["path"] for step in steps]
    searches(store, paths[:2048])


@app.command()
def musique(folder: _Folder, limit: int = 60) -> None:
    """Published decompositions over the passages around some questions."""
    lines = (DATA / "musique/questions.jsonl").read_text().splitlines()
    known = [q for q in map(json.loads, lines) if q.get("decomposition") and q.get("supporting")][:limit]
    if not folder.exists():
        wanted = {name for question in known for name in question["context"]}
        documents = read([DATA / "musique/corpus.jsonl"])
        build_index((d for d in documents if isinstance(d, TextDocument) and d.uri in wanted), folder)
    index = Index(folder)
    store = opened(index)
    for update in ("on", "off"):
        records = asked(Session(index, store), FollowsDecompositions(known), known, update=update)
        memory, listed, sizes = [], [], []
        for question, record in zip(known, records, strict=True):
            gold = set(question["supporting"])
            uris = {one["uri"] for one in record["evidence"]}
            pool = index.search([question["question"]], max(len(uris), 1))[0]
            near = {index.corpus.uri(index.corpus.source[index.units[unit]]) for unit, _ in pool}
            memory.append(len(gold & uris) / len(gold))
            listed.append(len(gold & near) / len(gold) if uris else 0.0)
            sizes.append(len(uris))
        sources = Counter(s["source"] for r in records for steps in r["trace"]["path"] for s in steps)
        print(
            f"update={update}: {len(known)} questions, {fmean(sizes):.1f} passages in a memory; support recall"
            f" {fmean(memory):.3f}, of BM25's first as many {fmean(listed):.3f}; answers from {dict(sources)}"
        )


def opened(index: Index) -> Knowledge:
    """The store, built where there is none yet."""
    embedder = Embedder(device="cpu")
    if not has_knowledge(index):
        begun = perf_counter()
        extracts = list(read_straight(index))
        print(f"read without a model in {perf_counter() - begun:.1f} s")
        change(index, embedder, lambda database: Writer(database).add(extracts))
        print(f"store built in {perf_counter() - begun:.0f} s")
    begun = perf_counter()
    store = open_knowledge(index, embedder)
    took = perf_counter() - begun
    print(
        f"opened in {took:.2f} s: {len(store)} triples, {len(store.facts)} facts, {len(store.entities)} entities"
    )
    return store


def asked(session: Session, llm: Backend, questions: list[dict[str, Any]], **settings: str) -> list[Any]:
    """The records of a run of subqrag."""
    system = load_system("subqrag")
    records: list[Any] = []
    ask = system.ask(system.configure(settings), session)
    begun = perf_counter()
    inputs = (Question(question["id"], question["question"]) for question in questions)
    asyncio.run(answer_all(inputs, ask, session.index, llm, records.append, 64))
    print(f"{len(questions)} questions in {perf_counter() - begun:.1f} s")
    return [record.as_json() for record in records]


def searches(store: Knowledge, texts: list[str]) -> None:
    """Searches a second in batches of 128, and what they find of the nearest five; the peer beside them."""
    begun = perf_counter()
    queries = store.encode(texts)
    print(f"{len(texts) / (perf_counter() - begun):.0f} sub-questions encoded a second")
    found = np.concatenate([store.search("facts", queries[i : i + 128], 5)[0] for i in range(0, 1024, 128)])
    begun = perf_counter()
    for i in range(0, len(queries), 128):
        store.search("facts", queries[i : i + 128], 5)
    print(f"{len(queries) / (perf_counter() - begun):.0f} searches a second, batched")
    matrix = store.matrix("facts")
    exact = np.argsort(-(queries[:100] @ matrix.T), axis=1)[:, :5]
    share = np.mean([len({*a} & {*b}) / 5 for a, b in zip(found.tolist(), exact.tolist(), strict=False)])
    print(f"{share:.4f} of the five nearest found")
    sample = store.wordings("facts")[: 32 * BATCH]
    begun = perf_counter()
    store.encode(sample)
    each = (perf_counter() - begun) * len(matrix) / len(sample)
    print(f"the peer, all facts encoded for each sub-question: {each:.0f} s each, from {len(sample)} of them")
    items = [(text, Learned()) for text in texts]
    begun = perf_counter()
    for i in range(0, len(items), 128):
        recall(None, items[i : i + 128], store, 5, 4)  # type: ignore[arg-type]
    print(f"{len(items) / (perf_counter() - begun):.0f} recalls a second, from words to facts in words")


if __name__ == "__main__":
    app()
