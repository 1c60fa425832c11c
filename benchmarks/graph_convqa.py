"""Does the graph help? graph_convqa beside the text-only fine-tune and the untrained model, on held-back turns.

    python benchmarks/graph_convqa.py MODEL OUT                      # all three, one after the other; goes on
    python benchmarks/graph_convqa.py MODEL OUT --only graph         # one of them, say in a process of its own
    python benchmarks/graph_convqa.py MODEL OUT --only none          # the table of what is there

ConvMix of PYFAST_DATA: its dev conversations to learn from, its test conversations to be asked, gold history. Of
each the first turns are taken whose answers the corpus has, paraphrases of conversations only to learn from. The
same examples, order, seeds and number of steps for both; H@1 and H@5 with 95 % intervals by drawing conversations.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer
from jobs import job, work
from rich.console import Console
from rich.table import Table

from pyfast.corpus import read
from pyfast.engine import Budget, read_questions
from pyfast.engine.traces import records_of
from pyfast.evaluation import bootstrap_interval, evaluate, hits
from pyfast.llm import open_llm
from pyfast.retrieval import Index, build_index
from pyfast.systems import load_system
from pyfast.systems.graph_convqa.training import Recipe, train
from pyfast.training.loop import Point, Schedule

DATA = Path(os.environ.get("PYFAST_DATA", Path(__file__).resolve().parents[2] / "shared" / "data")) / "convmix"
VARIANTS = ("zero-shot", "text", "graph", "graph-only")
"""The untrained model; the text-only fine-tune; the graph beside the tokens; the graph alone, as in the paper"""


def answerable(split: str, paraphrases: bool, most: int) -> Iterator[dict[str, Any]]:
    """Conversations up to the first turn that the corpus cannot answer, of `most` turns in all."""
    for line in (DATA / "conversations.jsonl").read_text(encoding="utf-8").splitlines():
        talk = json.loads(line)
        turns = list(takewhile(lambda turn: turn["evidence"], talk["turns"]))
        if talk["split"] == split and turns and (paraphrases or not talk["paraphrase_of"]) and most > 0:
            most -= len(turns)
            yield {"id": talk["id"], "domain": talk["domain"], "turns": turns}


def write(path: Path, conversations: Iterator[dict[str, Any]]) -> Path:
    """The conversations as a file."""
    path.write_text("".join(json.dumps(talk) + "\n" for talk in conversations), encoding="utf-8")
    return path


def learn(variant: str, index: Index, model: Path, out: Path, recipe: Recipe, schedule: Schedule) -> None:
    """Train, unless that is done."""
    told = Console(stderr=True)

    def step(point: Point, total: int) -> None:
        told.print(f"{variant} {point.step + 1}/{total} loss {point.loss:.3f} {point.seconds:.1f} s")

    if not (out / "recipe.json").exists():
        train(index, list(read_questions(out.parent / "learn.jsonl")), model, out, recipe, schedule, on_step=step)


def answer(variant: str, index: Index, model: Path, out: Path, recipe: Recipe) -> None:
    """Ask the held-back turns, unless that is done."""
    given = {"history": "gold", "memory": recipe.memory, "passages": str(recipe.passages), "k": str(recipe.k)}
    given |= {"trained": str(out)} if recipe.graph and variant != "zero-shot" else {"graph": "off"}
    llm = open_llm(
        f"transformers:{model if variant == 'zero-shot' else out / 'model'}",
        context_window=recipe.max_prompt_tokens,
    )
    asked = list(read_questions(out.parent / "held.jsonl"))
    system = load_system("graph_convqa")
    wanted = job(system, given, None, llm, index, lambda: iter(asked), len(asked), out / "run", 1, Budget())
    asyncio.run(work(wanted))


def scores(run: Path, gold: Path) -> tuple[list[float], list[str]]:
    """H@1 of each turn, and its conversation."""
    said = {record["id"]: record for record in (record for _, record in records_of(run / "answers.jsonl"))}
    talks = list(map(json.loads, gold.read_text().splitlines()))
    values = [
        hits(said[turn["id"]]["answer"], turn["answers"], said[turn["id"]]["trace"].get("entities", ())).first
        for talk in talks
        for turn in talk["turns"]
    ]
    return values, [talk["id"] for talk in talks for _ in talk["turns"]]


def main(
    model: Path,
    out: Path,
    only: Annotated[str | None, typer.Option(help=f"none, or one of {', '.join(VARIANTS)}.")] = None,
    learn_from: int = 176,
    held: int = 64,
    k: int = 6,
    epochs: int = 1,
    learning_rate: float = 5e-4,
    accumulation: int = 2,
    memory: str = "off",
) -> None:
    """Measure."""
    out.mkdir(parents=True, exist_ok=True)
    schedule = Schedule(epochs=epochs, learning_rate=learning_rate, accumulation=accumulation)
    write(out / "learn.jsonl", answerable("dev", True, learn_from))
    gold = write(out / "held.jsonl", answerable("test", False, held))
    source = out / "index"
    index = Index(source) if source.exists() else build_index(read([DATA / "corpus.jsonl"]), source)
    for variant in VARIANTS[:3] if only is None else [name for name in VARIANTS if name == only]:
        recipe = Recipe(
            graph=variant.startswith("graph"),
            k=k,
            memory=memory,
            residual=variant != "graph-only",  # type: ignore[arg-type]
        )
        if variant != "zero-shot":
            learn(variant, index, model, out / variant, recipe, schedule)
        answer(variant, index, model, out / variant, recipe)
    table = Table("variant", "turns", "H@1", "95 %", "H@5", "95 %", "H@1 above text-only", "95 %")
    runs = [variant for variant in VARIANTS if (out / variant / "run" / "answers.jsonl").exists()]
    for variant in runs:
        whole = evaluate(out / variant / "run" / "answers.jsonl", gold).rows[0]
        one, five = whole["h@1"], whole["h@5"]
        difference = ("", "")
        if "text" in runs and variant != "text":
            values, groups = scores(out / variant / "run", gold)
            above = [a - b for a, b in zip(values, scores(out / "text" / "run", gold)[0], strict=True)]
            difference = (f"{fmean(above):+.3f}", "{:+.3f} to {:+.3f}".format(*bootstrap_interval(above, groups)))
        table.add_row(
            *(variant, str(whole.questions)),
            *(said for hit in (one, five) for said in (f"{hit.value:.3f}", f"{hit.low:.3f} to {hit.high:.3f}")),
            *difference,
        )
    Console(width=140).print(table)


if __name__ == "__main__":
    typer.run(main)
