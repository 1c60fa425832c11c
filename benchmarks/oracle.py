"""What does the evidence hold, and what do the systems let a reader say? The reader (tests/oracle.py) knows the
gold plan and the gold answer, and says only what stands in the prompt that it is sent.

    python benchmarks/oracle.py                                   # n2n and hseq on the sets under PYFAST_DATA
    python benchmarks/oracle.py --sets metaqa --limit 100 --set steps=8

`held`: the share of questions whose evidence, as the record has it, holds the answer (of answers that are a set:
all of it); `EM`: exact match over all questions, and over those whose evidence holds the answer. The index is of
the whole set, not of a question's own documents; answers that stand nowhere, such as yes, no and what is reckoned,
are never held.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import pyfast
from pyfast.commands.arguments import pairs
from pyfast.corpus import read
from pyfast.retrieval import Index, build_index

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from oracle import Oracle, exact, holds

DATA = Path(os.environ.get("PYFAST_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
SETS = "hybridqa,hotpotqa,musique,2wiki,nq,metaqa,tatqa,convmix"


def facts(path: Path) -> Iterator[tuple[str, str, str]]:
    """The triples of a corpus."""
    for line in path.read_text(encoding="utf-8").splitlines():
        document = json.loads(line)
        if document["kind"] == "kg":
            yield from map(tuple, document["triples"])


def measure(
    name: str, limit: int | None, index: Index, system: str, settings: dict[str, str]
) -> Iterator[list[str]]:
    """A row for each kind of question that is looked at apart."""
    lines = (DATA / name / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    golds: list[dict[str, Any]] = [json.loads(line) for line in islice(lines, limit)]
    golds = list({gold["question"]: gold for gold in golds}.values())
    oracle = Oracle(golds, facts(DATA / name / "corpus.jsonl") if name == "metaqa" else ())
    run = pyfast.answer(
        [gold["question"] for gold in golds], index=index, llm=oracle, system=system, settings=settings
    )
    kinds = [gold["type"] if name == "metaqa" else "" for gold in golds]
    for kind in sorted(set(kinds)):
        held, matched, where = [], [], []
        for gold, record, of in zip(golds, run.records, kinds, strict=True):
            if of != kind:
                continue
            held.append(holds(gold, record, index))
            matched.append(exact(gold, record.answer))
            if held[-1]:
                where.append(matched[-1])
        shares = (fmean(held), fmean(matched), fmean(where) if where else float("nan"))
        yield [f"{name} {kind}".strip(), system, str(len(held)), *(f"{share:.3f}" for share in shares)]


def main(
    sets: Annotated[str, typer.Option(help="Which, by their folders.")] = SETS,
    systems: Annotated[str, typer.Option(help="Which, by their names.")] = "n2n,hseq",
    limit: Annotated[int | None, typer.Option(help="Of each set the first questions only.")] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the systems; repeatable.")
    ] = None,
) -> None:
    """Print the table."""
    table = Table("set", "system", "questions", "held", "EM", "EM where held")
    for name in sets.split(","):
        with tempfile.TemporaryDirectory() as folder:
            index = build_index(read([DATA / name / "corpus.jsonl"]), Path(folder) / "index")
            for system in systems.split(","):
                for row in measure(name, limit, index, system, pairs("--set", setting)):
                    table.add_row(*row)
    Console(width=100).print(table)


if __name__ == "__main__":
    typer.run(main)
