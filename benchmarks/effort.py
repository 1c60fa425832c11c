"""How much less can an LLM read if each question gets only the passages that are worth their length?

    python benchmarks/effort.py fit        # weights, and what to leave out, on questions whose blake2b(id) is odd
    python benchmarks/effort.py measure    # `effort=paper` and `effort=auto`, on the other questions

`fit` fits `pyfast.systems.effort.WEIGHTS` to the ranking that `n2n` reads for its answer. With the weights of the
code, it prints for several values of `unread`, and for each use of it, how many characters are left and how much
gold is lost. Gold are the annotated sentences of HotpotQA and 2WikiMultihopQA, for MuSiQue the sentences of
supporting passages that contain the answer of a step, and for HybridQA two things: a gold row of the table, and a
text that contains the answer. A step of MuSiQue, with the answers of earlier steps filled in, is the question of
a hop of `n2n`, or of a sub-question of `subqrag`.

`measure` runs the systems. The LLM is the one of tests/oracle.py, which plans by the gold, and answers if the
prompt contains the answer (`held`). Words are those of all prompts of a question. Intervals are those of the
paired difference, by the bootstrap.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import pyfast
from pyfast.corpus import Level, read
from pyfast.engine.journal.journal_reader import words_of
from pyfast.llm import Completion, Request
from pyfast.retrieval import Index, Pool, RerankConfig, build_index, rerank_pools, search_and_fuse
from pyfast.systems.effort import FEATURES, Item, features_of, worth_reading

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from oracle import Oracle, exact

DATA = Path(os.environ.get("PYFAST_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
SETS = ("hotpotqa", "2wiki", "musique", "hybridqa")
UNREAD = (0.03, 0.05, 0.08, 0.1, 0.11, 0.12, 0.13, 0.14, 0.15, 0.16, 0.18, 0.2, 0.25, 0.3, 0.4, 0.5)
Row = dict[str, Any]
Unit = frozenset[int]
"""Passages, one of which must be read: the one with a gold sentence, or any of the gold rows"""


def rows_of(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


@dataclass
class Questions:
    """The questions of a set whose blake2b(id) is odd or even, with an index of all its documents."""

    name: str
    index: Index
    even: bool

    @cached_property
    def rows(self) -> list[Row]:
        files = ("questions.jsonl", "questions.train.jsonl")
        every = [row for file in files for row in rows_of(DATA / self.name / file)]
        chosen = [row for row in every if row.get("supporting") and row.get("answers")]
        chosen = [row for row in chosen if blake2b(row["id"].encode()).digest()[-1] % 2 != self.even]
        return [row for row in chosen if self.units(row)]

    @cached_property
    def starts(self) -> dict[str, list[int]]:
        return {row["id"]: row.get("sent_starts") or [] for row in rows_of(DATA / self.name / "corpus.jsonl")}

    @cached_property
    def passages(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for passage in range(len(self.index.passages)):
            found.setdefault(self.index.uri(passage), []).append(passage)
        return found

    def units(self, row: Row) -> list[Unit]:
        if "table_id" in row:
            nodes = row.get("answer_nodes") or ()
            known, texts = (
                {at for _, (at, _), *_ in nodes},
                {uri for _, _, uri, kind in nodes if kind == "passage"},
            )
            starts, segments = self.index.corpus.start, self.index.passages
            of_table = [it for it in self.passages.get(row["table_id"], ()) if self.index.is_table[it]]
            rows = frozenset(it for it in of_table if not known or int(starts[segments[it]]) in known)
            linked = frozenset(it for uri in texts for it in self.passages.get(uri, ()))
            return [unit for unit in (rows, linked) if unit]
        answers = {step.get("doc"): step["answer"].lower() for step in row.get("decomposition") or ()}
        facts = row.get("supporting_facts") or ()
        return [
            frozenset([passage])
            for uri in {*answers, *(uri for uri, _ in facts)}
            for passage in self.passages.get(uri, ())
            for begins, text in self.sentences(passage)
            if any(
                of == uri and number < len(self.starts[uri]) and abs(self.starts[uri][number] - begins) <= 1
                for of, number in facts
            )
            or (uri in answers and answers[uri] in text.lower())
        ]

    def sentences(self, passage: int) -> Iterator[tuple[int, str]]:
        """(the place in the passage, the text) of each sentence."""
        corpus, segment = self.index.corpus, int(self.index.passages[passage])
        if corpus.level[segment] == Level.PARAGRAPH:
            for i in range(segment + 1, int(corpus.subtree_end[segment])):
                yield int(corpus.start[i] - corpus.start[segment]), " ".join(corpus.content(i).split())

    def steps(self) -> Iterator[tuple[str, list[Unit]]]:
        """Each step of a question of MuSiQue, as a question with the gold of this step alone."""
        for row in self.rows:
            known = [step["answer"] for step in row.get("decomposition") or ()]
            for step in row.get("decomposition") or ():
                text = step["question"].replace(" >> ", " ")
                for number, answer in enumerate(known, start=1):
                    text = text.replace(f"#{number}", answer)
                if units := self.units({"decomposition": [step], "answers": [step["answer"]]}):
                    yield text, units


Ranking = Callable[[Index, Sequence[str]], list[Item]]


def ranked(search: int, fused: int, most: int) -> Ranking:
    """The best `most` passages by the evidence graph of a search, as in `n2n` and `rag`."""

    def rank(index: Index, texts: Sequence[str]) -> list[Item]:
        first = search_and_fuse(index, [((text,), ()) for text in texts], fused)
        items = [((text,), (pool,)) for text, pool in zip(texts, first, strict=True)]
        pools = [pool.head(50) for pool in search_and_fuse(index, items, search)] if search > fused else first
        config = RerankConfig(most, most, rank="bridge_rank", expand=True)
        best = rerank_pools(index, list(zip(pools, texts, strict=True)), config)
        return list(zip(best, pools, texts, strict=True))

    return rank


def listed(k: int) -> Ranking:
    """The list of a search."""
    return lambda index, texts: [
        (pool, pool, text) for pool, text in zip(index.search(texts, k), texts, strict=True)
    ]


def pruned(search: int, fused: int, least: int, most: int) -> Ranking:
    """The passages that `n2n` reads with `effort=paper`."""

    def rank(index: Index, texts: Sequence[str]) -> list[Item]:
        config = RerankConfig(least, most, rank="bridge_rank", expand=True)
        items = [(pool, text) for _, pool, text in ranked(search, fused, most)(index, texts)]
        best = rerank_pools(index, items, config)
        return [(one, pool, text) for one, (pool, text) in zip(best, items, strict=True)]

    return rank


USES: Mapping[str, tuple[bool, Ranking, Ranking]] = {
    "n2n, answer": (False, pruned(100, 20, 12, 25), ranked(100, 20, 25)),
    "n2n, hop": (True, pruned(20, 20, 5, 10), ranked(20, 20, 10)),
    "rag": (False, listed(10), ranked(50, 50, 10)),
    "decompose, answer": (False, listed(25), listed(25)),
    "subqrag, documents": (True, listed(5), listed(5)),
}
"""For each use: whether it reads for a step, what it reads with `effort=paper`, and what it chooses from"""


def recall(units: Sequence[Unit], read: Pool) -> float:
    found = set(read.passages.tolist())
    return sum(not unit.isdisjoint(found) for unit in units) / len(units)


def characters(index: Index, read: Pool) -> int:
    offsets, _ = index.rendered
    return int((offsets[read.passages + 1] - offsets[read.passages]).sum())


def asked_of(questions: Questions, by_step: bool) -> list[tuple[str, list[Unit]]]:
    if by_step:
        return list(questions.steps())
    return [(row["question"], questions.units(row)) for row in questions.rows]


def fitted(sets: Sequence[Questions]) -> NDArray[np.float64]:
    """The weights of the features, by logistic regression. All sets count equally."""
    blocks, labels, weights = [], [], []
    for questions in sets:
        asked = asked_of(questions, by_step=False)
        items = USES["n2n, answer"][2](questions.index, [text for text, _ in asked])
        for item, features, (_, units) in zip(items, features_of(questions.index, items), asked, strict=True):
            gold = set().union(*units)
            blocks.append(features)
            labels.append(np.array([passage in gold for passage in item[0].passages.tolist()], float))
            weights.append(np.full(len(features), 100 / len(asked)))
    x, y, w = np.concatenate(blocks), np.concatenate(labels), np.concatenate(weights)
    found, penalty = np.zeros(len(FEATURES)), np.diag([1e-9, *[1.0] * (len(FEATURES) - 1)])
    for _ in range(50):
        expected = 0.5 + 0.5 * np.tanh(x @ found / 2)
        slope = x.T @ (w * (expected - y)) + penalty @ found
        found -= np.linalg.solve((x.T * (w * expected * (1 - expected))) @ x + penalty, slope)
    return found


def curves(use: str, sets: Sequence[Questions], table: Table) -> None:
    by_step, before, chooses = USES[use]
    for questions in sets:
        if by_step and questions.name != "musique":
            continue
        asked = asked_of(questions, by_step)
        texts, index = [text for text, _ in asked], questions.index
        whole = [pool for pool, *_ in before(index, texts)]
        had = np.mean([recall(units, pool) for (_, units), pool in zip(asked, whole, strict=True)])
        size = sum(characters(index, pool) for pool in whole)
        items = chooses(index, texts)
        cells = []
        for unread in UNREAD:
            reads = worth_reading(index, items, unread)
            now = np.mean([recall(units, pool) for (_, units), pool in zip(asked, reads, strict=True)])
            cells.append(f"{100 * (now - had):+.1f} {sum(characters(index, it) for it in reads) / size:.2f}")
        table.add_row(use, questions.name, f"{len(asked)}", f"{had:.3f}", *cells)


class Counting:
    """An LLM that counts the words that it is sent, by question."""

    context_window, slots = 32_768, 64

    def __init__(self, llm: Any) -> None:
        self.llm, self.words = llm, 0
        self.spec = self.fingerprint = f"counting {llm.fingerprint}"

    async def complete(self, request: Request) -> Completion:
        completion: Completion = await self.llm.complete(request)
        words = len(words_of(request.messages))
        return replace(completion, prompt_tokens=words)


def run_of(questions: Questions, system: str, settings: Mapping[str, Any]) -> NDArray[np.float64]:
    """For each question: words of its prompts, gold recall of its evidence, whether it held the answer."""
    rows = questions.rows
    run = pyfast.answer(
        [{"id": row["id"], "question": row["question"]} for row in rows],
        index=questions.index,
        llm=Counting(Oracle(rows)),
        system=system,
        settings=settings,
    )
    numbers = {
        f"{int(id):016x}": at for at, id in enumerate(questions.index.corpus.ids[questions.index.passages[:]])
    }
    figures = []
    for row, record in zip(rows, run.records, strict=True):
        if record.state == "failed":  # The oracle has no plan for a question that its own plan does not fit.
            figures.append((np.nan,) * 3)
            continue
        read = np.array([numbers[it.segment] for it in record.evidence], np.int32)
        pool = Pool(read, np.zeros(len(read), np.float32))
        held = exact(row, record.answer)
        figures.append((record.usage.prompt_tokens, recall(questions.units(row), pool), held))
    return np.array(figures, float)


def shown(change: NDArray[np.float64], factor: float = 100) -> str:
    """A mean difference with its 95 % interval."""
    drawn = np.random.default_rng(0).integers(0, len(change), (2000, len(change)))
    low, high = np.quantile(change[drawn].mean(axis=1), (0.025, 0.975)) * factor
    return f"{change.mean() * factor:+.1f} [{low:+.1f}, {high:+.1f}]"


def main(
    what: str,
    systems: Annotated[str, typer.Option(help="For `measure`.")] = "rag,n2n,decompose",
    sets: str = ",".join(SETS),
    effort: Annotated[str, typer.Option(help="For `measure`: what to compare with `paper`.")] = "auto",
    other: Annotated[
        bool, typer.Option(help="`fit` on even digests, with the weights of the code; `measure` on odd.")
    ] = False,
) -> None:
    """Print the table."""
    if what not in ("fit", "measure"):
        raise typer.BadParameter("fit or measure")
    with tempfile.TemporaryDirectory() as scratch:
        chosen = [
            Questions(
                name,
                build_index(read([DATA / name / "corpus.jsonl"]), Path(scratch) / name),
                (what == "measure") != other,
            )
            for name in sets.split(",")
        ]
        if what == "fit":
            if not other:
                print("WEIGHTS =", tuple(fitted(chosen).round(3).tolist()))
            table = Table("use", "set", "", "recall", *map(str, UNREAD))
            for use in USES:
                curves(use, chosen, table)
            Console(width=260).print(table, highlight=False)
            return
        table = Table("system", "set", "questions", "words", "change", "%", "recall", "points", "held", "points")
        for system in systems.split(","):
            for questions in chosen:
                before, after = (run_of(questions, system, {"effort": it}) for it in ("paper", effort))
                both = ~np.isnan(before + after).any(axis=1)
                change, was = (after - before)[both], before[both].mean(axis=0)
                table.add_row(
                    *(system, questions.name, f"{both.sum()}", f"{was[0]:,.0f}", shown(change[:, 0], 1)),
                    f"{100 * change[:, 0].mean() / was[0]:+.0f}",
                    *(f"{was[1]:.3f}", shown(change[:, 1]), f"{was[2]:.3f}", shown(change[:, 2])),
                )
        Console(width=160).print(table, highlight=False)


if __name__ == "__main__":
    typer.run(main)
