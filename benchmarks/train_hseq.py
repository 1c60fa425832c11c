"""Does training move the iterator's picks? The proxy F1 of HSEQ (A.2) on questions that it has not seen.

    python benchmarks/train_hseq.py train MODEL OUT                       # the data sets under PYFAST_DATA
    python benchmarks/train_hseq.py pick OUT untrained --llm vllm:MODEL --llm-option kv_cache_gib=1
    python benchmarks/train_hseq.py pick OUT trained --llm vllm:OUT/merged --llm-option kv_cache_gib=1
    python benchmarks/train_hseq.py pick OUT lexical                      # without an LLM: the question's words
    python benchmarks/train_hseq.py pick OUT first                        # the first k of the window
    python benchmarks/train_hseq.py report OUT

Learnt from are the training files of hotpotqa and musique, and of the other sets the questions whose table,
context or topic has an even hash; asked are those with the odd ones, and those of hotpotqa and musique. `train`
begins or goes on, for `--minutes`. Targets are the weak positives that an answer or a gold document marks; a
question that has none among the `prior` passages that a search finds is left out. `pick` runs algorithm 1 as
`pyfast answer` does, constrained decoding and all, without guidance and head.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from time import monotonic, perf_counter
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from selection import f1_interval, micro_averages

from pyfast.commands.arguments import values
from pyfast.corpus import read
from pyfast.engine import Answer, Context, Question
from pyfast.evaluation.evidence import Counts, counts
from pyfast.llm import FullLLM, open_llm
from pyfast.retrieval import Index, build_index
from pyfast.systems.hseq.iterator import Decision, Policy, Progress, iterate
from pyfast.systems.hseq.policies import lexical_policy, llm_policy
from pyfast.systems.hseq.state import State
from pyfast.systems.hseq.system import Settings
from pyfast.systems.hseq.weak_positives import Gold, candidate_passages, read_gold, weak_positives
from pyfast.systems.hseq.windows import open_window

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from runs import answer_all

DATA = Path(os.environ.get("PYFAST_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
SPLIT = ("hotpotqa", "musique")  # they have files of their own for training
SETS = (*SPLIT, "hybridqa", "tatqa", "metaqa")
SETTINGS = Settings(window=8, k=2, steps=3, prior=32, characters=80, guidance="off")
ENOUGH = 4
TOGETHER = ("context_id", "table_id", "topic_entity", "id")  # what questions share that belong on one side

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


def halves(name: str) -> tuple[list[Gold], list[Gold]]:
    """(to learn from, to ask); nothing that is asked is learnt from."""
    learn, ask = [], []
    if name in SPLIT:
        learn, ask = (read_gold(DATA / name / file) for file in ("questions.train.jsonl", "questions.jsonl"))
    else:
        path = DATA / name / "questions.jsonl"
        records = {record["id"]: record for record in map(json.loads, path.read_text("utf-8").splitlines())}
        for gold in read_gold(path):
            key = next(records[gold.id][field] for field in TOGETHER if records[gold.id].get(field))
            (ask if blake2b(key.encode()).digest()[0] % 2 else learn).append(gold)
    known = {gold.id for gold in learn} | {gold.question.strip().lower() for gold in learn}
    return learn, [gold for gold in ask if not {gold.id, gold.question.strip().lower()} & known]


def index_of(name: str, out: Path) -> Index:
    """The index of one set, built once."""
    folder = out / "index" / name
    return Index(folder) if folder.exists() else build_index(read([DATA / name / "corpus.jsonl"]), folder)


@app.command()
def train(
    model: Path,
    out: Path,
    minutes: Annotated[float | None, typer.Option(help="Stop then; the same command continues.")] = None,
    size: Annotated[int, typer.Option(help="Steps in the mixture.")] = 640,
    learning_rate: float = 7e-4,
    seed: int = 0,
    threads: Annotated[int, typer.Option(help="Of torch; one is best where others work too.")] = 2,
) -> None:
    """Train, write the adapter and the merged model."""
    import torch

    from pyfast.systems.hseq import training
    from pyfast.training.loop import Point, Schedule
    from pyfast.training.lora import ADAPTER, merge_adapter

    torch.set_num_threads(threads)
    sources = [(index_of(name, out), halves(name)[0]) for name in SETS]
    # Dropout takes a third of the time, and what is seen once or twice is not learnt by heart.
    recipe = training.Recipe(settings=SETTINGS, max_positives=ENOUGH, lexical_weight=0.0, size=size, dropout=0.0)
    schedule = Schedule(
        accumulation=2, learning_rate=learning_rate, rate="cosine", warmup=0.03, seed=seed, save_every=8
    )
    begun = monotonic()

    def on_step(point: Point, total: int) -> None:
        print(f"step {point.step + 1} of {total}: loss {point.loss:.4f}, {point.seconds:.0f} s", flush=True)

    training.train(
        sources, model, out, recipe, schedule,
        stop=lambda: minutes is not None and monotonic() > begun + 60 * minutes, on_step=on_step,
    )  # fmt: skip
    merge_adapter(model, out / ADAPTER, out / "merged")


def asked(out: Path, limit: int) -> Iterator[tuple[str, Index, list[Gold], list[set[int]]]]:
    """(name, index, questions, the positions of their targets) of each set: the first `limit` that have any."""
    for name in SETS:
        index, golds = index_of(name, out), halves(name)[1]
        found = candidate_passages(index, [gold.question for gold in golds], SETTINGS.prior)
        targets = [
            set(weak_positives(gold, passages, ENOUGH, 0.0)) for gold, passages in zip(golds, found, strict=True)
        ]
        chosen = list(islice((pair for pair in zip(golds, targets, strict=True) if pair[1]), limit))
        yield name, index, [gold for gold, _ in chosen], [wanted for _, wanted in chosen]


async def _first(state: State) -> Decision:
    return Decision(tuple(range(1, min(SETTINGS.k, len(state.window)) + 1)), 1.0)


def policy_of(name: str, ctx: Context) -> Policy:
    """Who picks."""
    if name == "first":
        return _first
    if name == "lexical":
        return lexical_policy(ctx, SETTINGS.k)
    return llm_policy(ctx, SETTINGS.k, SETTINGS.characters, 0)


@app.command()
def pick(
    out: Path,
    name: Annotated[
        str, typer.Argument(help="`first`, `lexical_weight`, or what the LLM's picks are to be called.")
    ],
    llm: str = "instant",
    llm_option: Annotated[list[str] | None, typer.Option(help="NAME=VALUE.")] = None,
    limit: Annotated[int, typer.Option(help="Questions of each set.")] = 40,
) -> None:
    """Let a policy pick; write what it picked."""
    asyncio.run(_pick(out, name, open_llm(llm, **values("--llm-option", llm_option)), limit))


async def _pick(out: Path, name: str, backend: FullLLM, limit: int) -> None:
    await backend.start()
    found: dict[str, dict[str, Any]] = {}
    try:
        for data, index, golds, targets in asked(out, limit):
            began = perf_counter()
            walks = await walked(index, backend, golds, name)
            found[data] = {
                gold.id: {
                    "counts": counts([it.position for it in walk.selected], wanted),
                    "ended": walk.ended,
                    "steps": walk.steps,
                }
                for gold, walk, wanted in zip(golds, walks, targets, strict=True)
            }
            print(f"{data}: {len(golds)} questions, {perf_counter() - began:.0f} s", flush=True)
    finally:
        await backend.close()
    (out / f"picked.{name}.json").write_text(json.dumps(found, indent=1))


async def walked(index: Index, backend: FullLLM, golds: Sequence[Gold], name: str) -> list[Progress]:
    """Algorithm 1, for each question."""
    walks: dict[str, Progress] = {}
    limits = SETTINGS.limits()

    async def ask(question: Question, ctx: Context) -> Answer:
        view = await ctx.call(open_window, question.text, limits.width, SETTINGS.prior, limits.priority)
        walks[question.id] = await iterate(Progress("", view), policy_of(name, ctx), ctx, limits, 0)
        return Answer("")

    asking = (Question(gold.id, gold.question) for gold in golds)
    await answer_all(asking, ask, index, backend, lambda record: None, 32)
    return [walks[gold.id] for gold in golds]


@app.command()
def report(out: Path) -> None:
    """The table: each policy's micro precision, recall and F1, and how far it is above `untrained`.

    Of the questions that all were asked.
    """
    runs: dict[str, dict[str, dict[str, Any]]] = {
        path.name.split(".")[1]: json.loads(path.read_text()) for path in sorted(out.glob("picked.*.json"))
    }
    if not runs:
        raise typer.BadParameter(f"nothing was picked in {out}")
    common = {data: set.intersection(*(set(run[data]) for run in runs.values())) for data in SETS}
    runs = {
        name: {data: {key: run[data][key] for key in sorted(common[data])} for data in SETS}
        for name, run in runs.items()
    }
    table = Table("set", "questions", "policy", "precision", "recall", "F1", "95 %", "above untrained", "steps")
    for data in ("all", *SETS):
        for name, run in runs.items():
            lines = _lines(run, data)
            before = _counts(_lines(runs["untrained"], data)) if "untrained" in runs else None
            found = _counts(lines)
            got = micro_averages(found)
            low, high = f1_interval(found)
            above = ""
            if before is not None and name != "untrained":
                above = "{:+.3f} to {:+.3f}".format(*f1_interval(found, before))
            steps = sum(len(line["steps"]) for line in lines.values()) / len(lines)
            table.add_row(
                data, str(len(found)), name, f"{got.precision:.3f}", f"{got.recall:.3f}", f"{got.f1:.3f}",
                f"{low:.3f} to {high:.3f}", above, f"{steps:.2f}", end_section=name == list(runs)[-1],
            )  # fmt: skip
    Console(width=130).print(table)


def _lines(run: dict[str, dict[str, Any]], data: str) -> dict[str, Any]:
    sets = SETS if data == "all" else (data,)
    return {f"{each} {key}": line for each in sets for key, line in run[each].items()}


def _counts(lines: dict[str, Any]) -> list[Counts]:
    return [tuple(line["counts"]) for line in lines.values()]


if __name__ == "__main__":
    app()
