"""Does iterating find more? Evidence of HSEQ's lexical iterator, beside as long a list of the search alone.

    python benchmarks/evidence.py                                       # the sets under PYFAST_DATA
    python benchmarks/evidence.py --sets metaqa --set steps=8           # one of them, other settings

No language model: the question's words alone pick, in windows of the stream and of what is related to the picks.
`recall` is the share of a question's gold documents among those of its evidence (`supporting`, or HybridQA's
table), `answers` the share of its answers that stand in the evidence. The list has the same number of passages for
each question, `steps` and `pieces` are means. Time is that of one core, the head left out.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from statistics import fmean
from time import process_time
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from pyfast.commands.arguments import pairs
from pyfast.corpus import read
from pyfast.engine import Answer, Context, Question
from pyfast.llm.instant import Instant
from pyfast.retrieval import Index, build_index
from pyfast.systems.hseq.iterator import Progress, iterate
from pyfast.systems.hseq.policies import lexical_policy
from pyfast.systems.hseq.system import Settings
from pyfast.systems.hseq.windows import links_of, open_window

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from runs import answer_all

DATA = Path(os.environ.get("PYFAST_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
SETS = "hotpotqa,hybridqa,tatqa,metaqa"


def iterated(index: Index, questions: list[str], settings: Settings) -> tuple[list[Progress], float]:
    """(what the lexical iterator ends with, seconds of one core)."""
    found: dict[str, Progress] = {}

    async def ask(question: Question, ctx: Context) -> Answer:
        view = await ctx.call(open_window, question.text, settings.window, settings.prior, settings.order)
        policy = lexical_policy(ctx, settings.k)
        found[question.id] = await iterate(Progress("", view), policy, ctx, settings.limits(), 0)
        return Answer("")

    asked = (Question(str(i), text) for i, text in enumerate(questions))
    index.search(questions[:1], 1), index.stream(settings.order), links_of(index)  # made once
    started = process_time()
    asyncio.run(answer_all(asked, ask, index, Instant(), lambda record: None, 256))
    return [found[str(i)] for i in range(len(questions))], process_time() - started


def scores(index: Index, gold: dict[str, Any], segments: list[int]) -> tuple[float | None, float]:
    """(recall of the gold documents, None where none are named; share of the answers in the evidence)."""
    corpus = index.corpus
    table = gold.get("table_id")
    wanted = {table} if table else set(gold.get("supporting") or ())
    uris = {corpus.uri(int(corpus.source[i])) for i in segments}
    text = " ".join(map(corpus.content, segments)).lower()
    answers = gold["answers"] or [""]
    stated = [str(answer).lower() in text for answer in answers]
    whole = gold.get("answer_mode") == "all"
    return len(wanted & uris) / len(wanted) if wanted else None, fmean(stated) if whole else float(any(stated))


def main(
    sets: Annotated[str, typer.Option(help="Which, by their folders.")] = SETS,
    setting: Annotated[list[str] | None, typer.Option("--set", help="A setting of hseq; repeatable.")] = None,
) -> None:
    """Print the table."""
    settings = Settings.model_validate({"iterator": "lexical", **pairs("--set", setting)})
    table = Table("set", "questions", "evidence", "steps", "pieces", "recall", "answers", "ms/question")
    for name in sets.split(","):
        lines = (DATA / name / "questions.jsonl").read_text(encoding="utf-8").splitlines()
        golds: list[dict[str, Any]] = [json.loads(line) for line in lines]
        questions = [gold["question"] for gold in golds]
        with tempfile.TemporaryDirectory() as folder:
            index = build_index(read([DATA / name / "corpus.jsonl"]), Path(folder) / "index")
            found, seconds = iterated(index, questions, settings)
            picked = [[it.position for it in progress.selected] for progress in found]
            lists = [
                index.passages[pool.passages].tolist()
                for question, segments in zip(questions, picked, strict=True)
                for pool in index.search([question], max(len(segments), 1))
            ]
            for who, evidence in (("list", lists), ("hseq, lexical", picked)):
                scored = [scores(index, gold, one) for gold, one in zip(golds, evidence, strict=True)]
                recalls = [recall for recall, _ in scored if recall is not None]
                own = who != "list"
                table.add_row(
                    *((name, str(len(golds))) if not own else ("", "")),
                    who,
                    f"{fmean(len(progress.steps) for progress in found):.2f}" if own else "",
                    f"{fmean(map(len, evidence)):.1f}",
                    f"{fmean(recalls):.3f}" if recalls else "",
                    f"{fmean(stated for _, stated in scored):.3f}",
                    f"{seconds / len(golds) * 1e3:.2f}" if own else "",
                    end_section=own,
                )
    Console(width=100).print(table)


if __name__ == "__main__":
    typer.run(main)
