"""Does structure find more? Recall of the list, of GraphRank, of bridge_rank, and of it with bridge_expand.

    python benchmarks/recall.py                                         # the benchmark sets under PYFAST_DATA
    python benchmarks/recall.py --corpus C.jsonl --questions Q.jsonl    # any other, in the same layout
    python benchmarks/recall.py --together 200000 --entries 250,500,2000    # how much bridge_expand must read
    python benchmarks/recall.py --headed 20                             # titles of texts as headings

With `--together`, one index has all sets and that many generated passages. These have the words of
`large_corpus.py`'s passages in random order, 16 passages at a time, so that none has a sentence of the data.

With `--headed`, so many texts of a set, in random order, are the sections of one Markdown document. Their titles
are only its headings, and a passage counts for the text whose section it is in.

One pool of `--pool` passages per question; a passage counts for the document that it comes from, each document
once. Recall@k is the share of a question's gold documents among the first k, averaged over questions that
name any: `supporting`, or for HybridQA, whose supporting lists are string matches, the one table that is certain.
Such a table is found by a gold row: a row with a cell that has the answer, or links to a text that has it
(`answer_nodes`). Where no cell is known, any row counts.
"""

from __future__ import annotations

import json
import os
import random
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from large_corpus import Source
from rich.console import Console
from rich.table import Table

from pyfast import ops
from pyfast.corpus import Document, TextDocument, read
from pyfast.ops.arrays import stack
from pyfast.retrieval import Index, Pool, build_index, rerank
from pyfast.retrieval.pools import split, stack_pools

Array = np.ndarray[Any, Any]
DATA = Path(os.environ.get("PYFAST_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
SETS = ("hotpotqa", "musique", "2wiki", "hybridqa", "nq")
EXPANDED = "bridge_rank + expand"


def gold_questions(path: Path) -> Iterator[tuple[str, set[str], set[int]]]:
    """(question, gold uris, gold rows of a table) of the questions that name their evidence."""
    for line in path.read_text(encoding="utf-8").splitlines():
        question: dict[str, Any] = json.loads(line)
        table = question.get("table_id")
        gold = {table} if table else set(question.get("supporting") or ())
        if gold:
            rows = {row for _, (row, _), *_ in question.get("answer_nodes") or ()} if table else set[int]()
            yield question["question"], gold, rows


def all_sets(generated: int) -> Iterator[Document]:
    """The documents of all sets, then generated ones."""
    for name in SETS:
        yield from (replace(it, uri=f"{name}/{it.uri}") for it in read([DATA / name / "corpus.jsonl"]))
    chance = random.Random(0)
    made = Source(DATA).documents(generated) if generated else iter(())
    while some := list(islice(made, 16)):
        words = [word for _, _, text in some for word in text.split()]
        chance.shuffle(words)
        for number, _, text in some:
            taken = len(text.split())
            yield TextDocument(f"generated/{number}", "", " ".join(words[:taken]))
            del words[:taken]


def headed(documents: Iterable[Document], size: int, uri_at: dict[tuple[str, int], str]) -> Iterator[Document]:
    """Put `size` texts each into one Markdown document with a heading for each text. Adds to `uri_at` the uri of
    the text that begins at each (uri of the document, place)."""
    kept = []
    for document in documents:
        if not isinstance(document, TextDocument):
            yield document
        elif text := " ".join(document.text.split()):
            kept.append((document.uri, f"## {' '.join(document.title.split())}\n\n{text}\n\n"))
    random.Random(0).shuffle(kept)
    for first in range(0, len(kept), size):
        at, uri, texts = 0, f"volume-{first // size}", []
        for own, text in kept[first : first + size]:
            uri_at[uri, at] = own
            at += len(text)
            texts.append(text)
        yield TextDocument(uri, f"Volume {first // size}", "".join(texts), markdown=True)


def uris_of(index: Index, uri_at: Mapping[tuple[str, int], str]) -> list[str]:
    """The uri for which each passage counts."""
    corpus = index.corpus
    places = index.passages.tolist()
    uris = [corpus.uri(corpus.source[i]) for i in places]
    if not uri_at:
        return uris
    above = [int(corpus.start[corpus.parent[i]]) for i in places]
    return [uri_at.get(pair, pair[0]) for pair in zip(uris, above, strict=True)]


def rankings(
    index: Index, questions: list[str], pools: list[Pool], entries: list[int]
) -> dict[str, tuple[Array, Array, Array]]:
    """For each method the pools that it ranks: (offsets, passages, scores). Expansion reads as many entries as
    pyfast does, or each of `entries`."""
    offsets, passages, semantic = stack_pools(pools)
    terms = stack([index.question_terms(question) for question in questions], np.int32)
    degree = ops.weighted_degree(index.X, offsets, passages)
    bridged = ops.bridge_rank(index.X, offsets, passages, semantic, terms)
    ranked = {
        "list": (offsets, passages, semantic),
        "graph_rank": (offsets, passages, ops.graph_rank(semantic, degree, offsets)),
        "bridge_rank": (offsets, passages, bridged),
    }
    usual = rerank.max_entries
    for number in entries or [usual(len(index.passages))]:
        rerank.max_entries = lambda passages, number=number: number
        wider = rerank.expand(index, offsets, passages, semantic, terms)
        name = f"expand, {number} entries" if entries else EXPANDED
        ranked[name] = (*wider[:2], ops.bridge_rank(index.X, *wider, terms))
    rerank.max_entries = usual
    return ranked


def recalls(
    index: Index,
    uris: list[str],
    path: Path,
    size: int,
    cuts: list[int],
    entries: list[int],
    within: str = "",
) -> tuple[int, dict[str, list[float]]]:
    """(number of questions, per method the mean recall at each cut). `uris` has the uri for which each passage
    counts. The uris of gold begin with `within`."""
    asked = [(question, {within + uri for uri in gold}, rows) for question, gold, rows in gold_questions(path)]
    questions = [question for question, *_ in asked]
    row_of = index.corpus.start[index.passages].tolist()
    found: dict[str, list[float]] = {}
    for method, ranked in rankings(index, questions, index.search(questions, size), entries).items():
        rows = []
        for (_, gold, gold_rows), pool in zip(asked, split(*ranked), strict=True):
            best = pool.passages[np.argsort(-pool.scores, kind="stable")].tolist()
            other = [bool(gold_rows) and uris[u] in gold and row_of[u] not in gold_rows for u in best]
            first = list(dict.fromkeys(zip((uris[u] for u in best), other, strict=True)))
            rows.append(
                [len(gold & {uri for uri, is_other in first[:k] if not is_other}) / len(gold) for k in cuts]
            )
        found[method] = np.mean(rows, axis=0).tolist()
    return len(asked), found


def main(
    corpus: Annotated[Path | None, typer.Option(help="A corpus file; with --questions.")] = None,
    questions: Annotated[Path | None, typer.Option(help="Its questions.")] = None,
    pool: Annotated[int, typer.Option(help="Passages retrieved per question.")] = 100,
    at: Annotated[str, typer.Option(help="Where to cut the rankings.")] = "5,10,20,50",
    entries: Annotated[str, typer.Option(help="How many entries expansion reads for a seed.")] = "",
    together: Annotated[int | None, typer.Option(help="All sets in one index, and so many more passages.")] = None,
    sections: Annotated[int | None, typer.Option("--headed", help="So many texts in one document.")] = None,
) -> None:
    """Print the table."""
    cuts, limits = ([int(k) for k in of.split(",") if k] for of in (at, entries))
    if corpus and questions:
        sets = [(questions.stem, corpus, questions)]
    else:
        sets = [(name, DATA / name / "corpus.jsonl", DATA / name / "questions.jsonl") for name in SETS]
    table = Table("set", "questions", "method", *(f"recall@{k}" for k in cuts))
    with tempfile.TemporaryDirectory() as scratch:
        shared = None if together is None else build_index(all_sets(together), Path(scratch) / "all")
        for name, corpus_file, question_file in sets:
            if not corpus_file.is_file():
                raise typer.BadParameter(f"{corpus_file} is not there; set PYFAST_DATA")
            uri_at: dict[tuple[str, int], str] = {}
            documents = headed(read([corpus_file]), sections, uri_at) if sections else read([corpus_file])
            index = shared or build_index(documents, Path(scratch) / name)
            within = f"{name}/" if shared else ""
            count, found = recalls(index, uris_of(index, uri_at), question_file, pool, cuts, limits, within)
            for number, (method, values) in enumerate(found.items(), start=1):
                first = ("", "") if number > 1 else (name, str(count))
                cells = (f"{value:.3f}" for value in values)
                table.add_row(*first, method, *cells, end_section=number == len(found))
    if shared:
        print(f"{len(shared.passages):,} passages")
    Console(width=100).print(table)


if __name__ == "__main__":
    typer.run(main)
