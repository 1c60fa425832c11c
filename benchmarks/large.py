"""Indexes of 50,000 to millions of generated passages: build, open, search, change; beside tantivy and bm25s.

    python benchmarks/large.py 50000 500000 1000000 [--folder FOLDER] [--memory 2000] [--bm25s-up-to 50000]

`large_corpus.py` generates the passages. Memory is the peak of the process without mapped files (RssAnon). Results
are compared first: scores with bm25s, and how many of tantivy's ten best are ours. Times are of the wall and, in
brackets, of the processor. Without tantivy (`pip install tantivy==0.27`) its rows are left out.
"""

from __future__ import annotations

import asyncio
import json
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, TypeVar

import numpy as np
import typer
from jobs import job, work
from large_corpus import DATA, SETS, Source, comparison, write

import pyfast
from pyfast.engine import Budget, Question
from pyfast.llm import open_llm
from pyfast.retrieval import Index
from pyfast.systems import load_system
from pyfast.utils.stop_words import LUCENE

T = TypeVar("T")
K, SINGLE, BATCH, ADDED = 10, 500, 1000, 1000


def anonymous(pid: int | str = "self") -> int:
    """MB of memory of a process without mapped files."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("RssAnon")), 0) // 1024


def timed(what: str, work: Callable[[], T]) -> T:
    """Print the times and the peak of memory of one step."""
    peak, done = [anonymous()], threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            peak[0] = max(peak[0], anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    wall, processor = time.perf_counter(), time.process_time()
    try:
        found = work()
    finally:
        took = time.perf_counter() - wall, time.process_time() - processor
        done.set()
        watcher.join()
    print(f"{what:40} {took[0]:9.3f} s [{took[1]:8.3f}] {max(peak[0], anonymous()):6,} MB", flush=True)
    return found


def build(corpus: Path, out: Path, memory: int) -> None:
    """Build in a process of its own, and print its time and the peak of its memory and of its children's."""
    command = [sys.executable, "-m", "pyfast", "index", str(corpus), "--out", str(out), "--memory", str(memory)]
    began, before, peak = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN), 0
    child = subprocess.Popen(command)
    children = Path(f"/proc/{child.pid}/task/{child.pid}/children")
    while child.poll() is None:
        with suppress(OSError):
            peak = max(peak, anonymous(child.pid) + sum(map(anonymous, children.read_text().split())))
        time.sleep(0.05)
    if child.returncode:
        raise SystemExit(child.returncode)
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) // 1_000_000
    print(f"{'build':40} {took:9.1f} s [{used:8.1f}], peak {peak:,} MB, {size:,} MB on the disk", flush=True)


def latency(what: str, search: Callable[[list[str]], object], queries: list[str]) -> float:
    """Print p50 and p99 of single queries, and queries a second; return p50 by the processor."""
    each = np.full((SINGLE, 2), np.inf)  # of each query the best of three
    for number, query in [*enumerate(queries[:20]), *enumerate(queries[:SINGLE])] * 3:
        began = time.perf_counter(), time.process_time()
        search([query])
        took = time.perf_counter() - began[0], time.process_time() - began[1]
        each[number] = np.minimum(each[number], took)
    batch = []
    for _ in range(3):
        began = time.perf_counter(), time.process_time()
        search(queries[:BATCH])
        batch.append((time.perf_counter() - began[0], time.process_time() - began[1]))
    (p50, cpu50), (p99, cpu99) = np.percentile(each, 50, axis=0) * 1e3, np.percentile(each, 99, axis=0) * 1e3
    best = min(wall for wall, _ in batch), min(used for _, used in batch)
    print(
        f"{what:40} p50 {p50:.2f} [{cpu50:.2f}] ms, p99 {p99:.2f} [{cpu99:.2f}] ms;"
        f" alone {SINGLE / each[:, 0].sum():,.0f}, in batches {BATCH / best[0]:,.0f} queries/s"
        f" [{best[1] / BATCH * 1e3:.2f} ms of the processor each]",
        flush=True,
    )
    return float(cpu50)


def beside_tantivy(index: Index, corpus: Path, folder: Path, queries: list[str]) -> None:
    """tantivy over the same texts, with its own tokenizer and its fixed k1 = 1.2. Queries have no stop words."""
    try:
        import tantivy
    except ImportError:
        print("tantivy is not installed")
        return
    schema = tantivy.SchemaBuilder()
    schema.add_text_field("uri", stored=True, tokenizer_name="raw")
    schema.add_text_field("text", tokenizer_name="default")
    folder.mkdir()
    peer = tantivy.Index(schema.build(), path=str(folder))

    def fill() -> None:
        writer = peer.writer(heap_size=500_000_000, num_threads=1)
        with corpus.open(encoding="utf-8") as lines:
            for line in lines:
                record = json.loads(line)
                text = f"{record['title']} {record['text']}"
                writer.add_document(tantivy.Document(uri=record["id"], text=text))
        writer.commit()
        writer.wait_merging_threads()

    timed("tantivy: build", fill)
    peer.reload()
    searcher = peer.searcher()

    stop = index.analysis.stop(LUCENE)

    def search(some: list[str]) -> list[list[str]]:
        found = []
        for query in some:
            words = " ".join(word for word in index.analysis.tokens(query) if word not in stop)
            hits = searcher.search(peer.parse_query(words, ["text"]), K).hits
            found.append([searcher.doc(place)["uri"][0] for _, place in hits])
        return found

    ours = pyfast.open_index(index.folder, retriever="bm25:k1=1.2,b=0.75").search(queries[:200], K)
    uris = [set(map(index.uri, pool.passages.tolist())) for pool in ours]
    same = [len(a & set(b)) / K for a, b in zip(uris, search(queries[:200]), strict=True)]
    print(f"{'tantivy: of its ten best also ours':40} {np.mean(same):.1%}")
    latency("tantivy", search, queries)
    shutil.rmtree(folder)


def beside_bm25s(index: Index, queries: list[str]) -> None:
    """bm25s over the same counts; the scores of the best passages must be the same."""
    from bm25s_peer import bm25s_of

    engine = timed("bm25s: build from our counts", lambda: bm25s_of(index, "numpy"))

    def search(some: list[str]) -> Any:
        asked = [[t for t in index.terms.find(index.analysis.tokens(query)).tolist() if t >= 0] for query in some]
        return engine.retrieve(asked, k=K, show_progress=False)

    pools, (_, scores) = index.search(queries[:200], K), search(queries[:200])
    differ = max(
        float(np.abs(pool.scores - row[: len(pool.scores)]).max(initial=0))
        for pool, row in zip(pools, scores, strict=True)
    )
    print(f"{'bm25s: largest difference of a score':40} {differ:.2g}")
    latency("bm25s, NumPy", search, queries)
    bm25s_of.cache_clear()  # its gigabytes would take the place of mapped files


def rag(index: Index, queries: list[str], folder: Path, count: int = 2000) -> None:
    """`rag` with an LLM that answers at once, journal on."""
    asked = [Question(f"{number}", query) for number, query in enumerate(islice(cycle(queries), count))]

    def run(some: list[Question], out: Path) -> None:
        given: Callable[[], Iterator[Question]] = partial(iter, some)
        asyncio.run(
            work(
                job(
                    load_system("rag"), {}, None, open_llm("instant"), index, given, len(some), out, 512, Budget()
                ),
            )
        )

    timed("rag, 200 questions to begin with", lambda: run(asked[:200], folder / "warm"))
    wall, processor = time.perf_counter(), time.process_time()
    timed(f"rag, {count:,} questions", lambda: run(asked, folder / "run"))
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    print(
        f"{'rag without the LLM':40} {count / wall:,.0f} questions/s;"
        f" {count / processor:,.0f} a second of the processor"
    )


def changes(path: Path, queries: list[str], count: int, source: Source) -> None:
    """Add, delete, update and compact."""
    fresh = (
        latency("search, fresh", lambda some: index.search(some, K), queries) if (index := Index(path)) else 0.0
    )
    made = list(source.documents(ADDED + count // 10, seed=7))
    added = [{"id": f"new {uri}", "title": title, "text": text} for uri, title, text in made[:ADDED]]

    def add() -> Index:
        pyfast.add_documents(path, added)
        return Index(path)

    seen = timed(f"add {ADDED:,} documents, and open", add)
    assert seen.manifest["documents"] == count + ADDED
    latency(f"search, {ADDED:,} added", lambda some: seen.search(some, K), queries)
    for number in range(3):
        timed("delete a document", partial(pyfast.delete_documents, path, added[number]["id"]))
    before = 0
    for share in (0.01, 0.1):
        upto = int(count * share)
        some = [{"id": str(n + 1), "title": t, "text": x} for n, (_, t, x) in enumerate(made[before:upto], before)]
        timed(f"update up to {share:.0%}", partial(pyfast.update_documents, path, some))
        before = upto
        changed = Index(path)
        latency(
            f"search, {share:.0%} updated, {len(changed.parts)} parts",
            lambda some, index=changed: index.search(some, K),
            queries,
        )
    timed("compact", lambda: pyfast.compact_index(path, erase=True))
    merged = Index(path)
    after = latency("search, compacted", lambda some: merged.search(some, K), queries)
    print(f"{'compacted to fresh, p50 of the processor':40} {after / fresh:.2f}")


def measure(count: int, source: Source, folder: Path, memory: int, bm25s_up_to: int, questions: list[str]) -> None:
    """All figures of one size."""
    print(f"\n== {count:,} passages")
    folder.mkdir(parents=True)
    corpus, path = folder / "corpus.jsonl", folder / "index"
    write(source, count, corpus)
    print(f"{'text':40} {corpus.stat().st_size / 1e6:,.0f} MB")
    build(corpus, path, memory)
    index = timed("open", lambda: Index(path))
    if count <= bm25s_up_to:
        beside_bm25s(index, questions)
    latency("pyfast", partial(index.search, k=K), questions)
    beside_tantivy(index, corpus, folder / "tantivy", questions)
    rag(index, questions, folder)
    del index
    corpus.unlink()
    changes(path, questions, count, source)
    shutil.rmtree(folder)


def main(
    counts: list[int],
    folder: Annotated[Path, typer.Option(help="Where indexes are made and removed.")] = Path("large"),
    memory: int = 2000,
    bm25s_up_to: Annotated[int, typer.Option("--bm25s-up-to")] = 50_000,
) -> None:
    """Measure."""
    source = Source()
    with TemporaryDirectory() as scratch:  # what is imported at first use is no part of a change
        pyfast.build_index({"id": "0", "text": "Titan is a moon of Saturn."}, Path(scratch) / "index")
    for what, real, made in comparison(source):
        print(f"{what:45} data {real:12.3f}, generated {made:12.3f}: {made / real - 1:+.1%}")
    questions = [
        json.loads(line)["question"]
        for name in SETS
        for line in (DATA / name / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    order = np.random.default_rng(1).permutation(len(questions)).tolist()
    questions = [questions[k] for k in order][:BATCH]
    for count in counts:
        measure(count, source, folder / str(count), memory, bm25s_up_to, questions)


if __name__ == "__main__":
    typer.run(main)
