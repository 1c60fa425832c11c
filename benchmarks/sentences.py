"""How many gold sentences stay in a prompt that has only a share of the passages' text?

    python benchmarks/sentences.py [--k 10] [--even]

For questions of HotpotQA and 2WikiMultihopQA, whose annotations name the supporting sentences, and of MuSiQue,
where a sentence of a supporting passage counts if it has the answer of its step. The passages are those of one
search.
`chosen` keeps the sentences that `narrate_sentences` chooses, and `cut` the first passages that fit into as many
characters. Without `--even`, the questions are those whose blake2b(id) is odd: on these, the factors were chosen.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from time import perf_counter
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table

from pyfast.corpus import Level, read
from pyfast.retrieval import Index, Pool, build_index, narrate, narrate_sentences

DATA = Path(os.environ.get("PYFAST_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
SHARES = (0.3, 0.4, 0.5, 0.6, 0.8)
Row = dict[str, Any]


def rows_of(path: Path) -> list[Row]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def gold_sentences(index: Index, pool: Pool, question: Row, starts: dict[str, list[int]]) -> Iterator[str]:
    """The gold sentences in the passages of a pool, as they stand in a prompt."""
    corpus = index.corpus
    answers = {step.get("doc"): step["answer"].lower() for step in question.get("decomposition") or ()}
    for passage in pool.passages.tolist():
        uri, segment = index.uri(passage), int(index.passages[passage])
        if corpus.level[segment] != Level.PARAGRAPH:
            continue
        for i in range(segment + 1, int(corpus.subtree_end[segment])):
            text = " ".join(corpus.content(i).split())
            begins = corpus.start[i] - corpus.start[segment]
            facts = (number for of, number in question.get("supporting_facts") or () if of == uri)
            named = any(number < len(starts[uri]) and abs(starts[uri][number] - begins) <= 1 for number in facts)
            if named or (uri in answers and answers[uri] in text.lower()):
                yield text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--k", type=int, default=10, help="Passages of the search.")
    parser.add_argument("--even", action="store_true", help="The questions that no factor was chosen on.")
    options = parser.parse_args()
    table = Table("set", "questions", "gold", *(f"{share:.0%}: chosen, cut" for share in SHARES), "ms a question")
    for name in ("hotpotqa", "2wiki", "musique"):
        corpus = DATA / name / "corpus.jsonl"
        starts = {row["id"]: row.get("sent_starts", []) for row in rows_of(corpus)}
        questions = [
            row
            for file in ("questions.jsonl", "questions.train.jsonl")
            if (DATA / name / file).exists()
            for row in rows_of(DATA / name / file)
            if row.get("supporting") and blake2b(row["id"].encode()).digest()[-1] % 2 != options.even
        ]
        with tempfile.TemporaryDirectory() as folder:
            index = build_index(read([corpus]), Path(folder) / "index")
            pools = index.search([row["question"] for row in questions], options.k)
            items = [(pool, row["question"]) for pool, row in zip(pools, questions, strict=True)]
            whole = narrate(index, pools, 10**9)
            gold = [
                [sentence for sentence in gold_sentences(index, pool, row, starts) if sentence in full]
                for pool, row, full in zip(pools, questions, whole, strict=True)
            ]
            had, shown, took = sum(map(len, gold)), list[str](), 0.0
            for share in SHARES:
                began = perf_counter()
                chosen = narrate_sentences(index, items, 10**9, share)
                took = perf_counter() - began
                kept = cut = 0
                for one, (text, _), full in zip(gold, chosen, whole, strict=True):
                    kept += sum(sentence in text for sentence in one)
                    cut += sum(sentence in full[: len(text)] for sentence in one)
                shown.append(f"{kept / had:.3f}, {cut / had:.3f}")
            table.add_row(name, f"{len(questions)}", f"{had}", *shown, f"{1000 * took / len(questions):.2f}")
    Console(width=150).print(table, highlight=False)


if __name__ == "__main__":
    main()
