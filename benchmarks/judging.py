"""How often does a judge agree with people? It judges 50 answers to the example questions, labelled by hand.

    python benchmarks/judging.py --llm embedded

The answers (tests/evaluation/labelled_answers.jsonl) are 25 correct ones, most in other words than the gold, and
25 wrong ones. Beside the judge: exact match, and saying that all are correct. The intervals are Wilson's.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from scipy.stats import binomtest

import pyfast
from pyfast.api.judgement import judge_answers
from pyfast.evaluation import exact_match
from pyfast.llm import Completion, Request

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))


class Says:
    """A reader that gives the labelled answers."""

    spec = fingerprint = "labelled"
    context_window, slots = 32_768, 50

    def __init__(self, answers: dict[str, str]) -> None:
        self.answers = answers

    async def complete(self, request: Request) -> Completion:
        text = request.messages[-1].content.rpartition("Question: ")[2]
        answer = next(said for asked, said in self.answers.items() if text.startswith(asked))
        return Completion(json.dumps({"answer": answer}), "stop")


def main(llm: Annotated[str, typer.Option(help="The judge, as in `pyfast answer --llm`.")] = "embedded") -> None:
    """Let the judge read two sets of 25 answers, and count."""
    labelled = [
        json.loads(line) for line in (ROOT / "tests/evaluation/labelled_answers.jsonl").read_text().splitlines()
    ]
    golds = [json.loads(line) for line in (ROOT / "examples/questions.jsonl").read_text().splitlines()]
    by_id = {one["id"]: one for one in golds}
    agree = {"judge": 0, "exact match": 0, "all correct": 0}
    judged = 0
    with tempfile.TemporaryDirectory() as folder:
        index = pyfast.build_index(ROOT / "examples/corpus", Path(folder) / "IDX")
        for right in (True, False):
            some = [one for one in labelled if one["correct"] is right]
            reader = Says({by_id[one["id"]]["question"]: one["answer"] for one in some})
            run = Path(folder) / f"run-{right}"
            pyfast.answer(golds, index=index, run=run, system="rag", llm=reader)
            judge_answers(run, golds, judged=Path(folder) / f"judged-{right}", llm=llm)
            report = pyfast.evaluate(run, golds, metrics=["em_f1"], judged=Path(folder) / f"judged-{right}")
            verdicts = {one.id: one.figures.get("judged_correct") for one in report.questions}
            for one in some:
                exact = any(exact_match(one["answer"], gold) for gold in by_id[one["id"]]["answers"])
                judged += verdicts[one["id"]] is not None
                agree["judge"] += verdicts[one["id"]] == float(right)
                agree["exact match"] += bool(exact) is right
                agree["all correct"] += right
    table = Table(
        "judge", "agrees with the label", "95 %", title=f"{len(labelled)} answers, {judged} judged by {llm}"
    )
    for name, count in agree.items():
        found = binomtest(count, len(labelled)).proportion_ci(method="wilson")
        table.add_row(name, f"{count} of {len(labelled)}", f"{found.low:.2f} to {found.high:.2f}")
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
