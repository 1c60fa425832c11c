"""What it costs to change an index: add, open, delete, search at 0, 1 and 10 % updates, compact.

    python benchmarks/changing.py [DATA_FOLDER]

The corpus is all passages of the data folder. Times are of the wall and of the processor; search is one query at a
time, and a batch of all questions.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TypeVar

import numpy as np

import pyfast
from pyfast.corpus import Document, TextDocument, read
from pyfast.retrieval import Index

SETS = ("hotpotqa", "musique", "2wiki", "hybridqa")
ADDED, QUERIES = 1000, 500
T = TypeVar("T")


def timed(what: str, work: Callable[[], T]) -> T:
    wall, processor = time.perf_counter(), time.process_time()
    done = work()
    print(
        f"{what:44} {time.perf_counter() - wall:8.3f} s {time.process_time() - processor:8.3f} s of the processor"
    )
    return done


def search(name: str, index: Index, queries: list[str]) -> None:
    """p50 and p99 of one query, and a batch."""
    index.search(queries[:10], 20)
    each = []
    for query in queries:
        began = time.process_time()
        index.search(query, 20)
        each.append(time.process_time() - began)
    batch = min(_processor(lambda: index.search(queries, 20)) for _ in range(5))
    p50, p99 = np.percentile(each, [50, 99]) * 1e6
    print(
        f"{name:44} {len(index.parts)} parts: p50 {p50:.0f}, p99 {p99:.0f} µs;"
        f" in a batch {batch / len(queries) * 1e6:.0f} µs of the processor a query"
    )


def _processor(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def changed(document: Document) -> Document:
    return replace(document, text=f"{document.text} Changed.") if isinstance(document, TextDocument) else document


def main() -> None:
    data = Path(sys.argv[1] if len(sys.argv) > 1 else "../shared/data")
    documents = [
        replace(document, uri=f"{name}/{document.uri}")  # the sets share articles
        for name in SETS
        for document in read([data / name / "corpus.jsonl"])
    ]
    lines = chain.from_iterable(
        (data / name / "questions.jsonl").read_text(encoding="utf-8").splitlines()[: QUERIES // len(SETS)]
        for name in SETS
    )
    queries = [json.loads(line)["question"] for line in lines]
    texts = [document for document in documents if isinstance(document, TextDocument)]
    extra = texts[:ADDED]
    uris = {document.uri for document in extra}
    base = [document for document in documents if document.uri not in uris]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        index = timed(f"build {len(base):,} documents", lambda: pyfast.build_index(base, path))
        print(f"{'':44} {len(index.passages):,} passages, {len(index.corpus):,} segments")
        timed("open", lambda: Index(path))
        search("search, fresh", index, queries)
        timed(f"add {ADDED:,} documents", lambda: pyfast.add_documents(path, extra))
        index = timed("open", lambda: Index(path))
        timed("weigh the forward index", lambda: index.X)
        search(f"search, {ADDED:,} added", index, queries)
        for n in range(3):
            timed("delete a document", lambda n=n: pyfast.delete_documents(path, extra[n].uri))
        for share in (0.01, 0.1):
            chosen = texts[ADDED : ADDED + int(share * len(documents))]
            timed(f"update {share:.0%}", lambda chosen=chosen: pyfast.update_documents(path, map(changed, chosen)))
            search(f"search, {share:.0%} updated", Index(path), queries)
        timed("compact", lambda: pyfast.compact_index(path, erase=True))
        search("search, compacted", timed("open", lambda: Index(path)), queries)


if __name__ == "__main__":
    main()
