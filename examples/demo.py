"""What `make demo` runs: index the example corpus, answer questions on it with three systems, show what came out.

    python examples/demo.py [LLM [FOLDER]]    # by default: embedded demo

Everything goes through the command line, as a user would call it. The folder keeps the index and the runs.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import fill, shorten
from time import perf_counter
from typing import Any

import pyfast
from pyfast.api.run import rows_in
from pyfast.evaluation.evidence import is_gold, with_rows
from pyfast.evaluation.gold import read_gold

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
LLM = sys.argv[1] if len(sys.argv) > 1 else "embedded"
DEMO = Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "demo"
WIDTH = 80
EVERY = 3  # the questions asked: every third of the file, which has them by their number of hops
# Small contexts: a small model loses its way in the paper's 25 documents, and a CPU reads them for half a minute.
SETTINGS = ["hop_k=20", "hop_min=2", "hop_max=5", "final_min=3", "final_max=10", "abstain=off"]
SYSTEMS = {"direct": [], "rag": ["k=5", "abstain=off"], "n2n": SETTINGS}
ABOUT = {"direct": "the model alone", "rag": "one search", "n2n": "a search a step"}


def lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON lines file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def tell(text: str, first: str = "", later: str = "") -> None:
    """Print a text on lines of at most 80 characters. `first` begins the first line, `later` the others."""
    wide = {"width": WIDTH, "break_on_hyphens": False}
    print(fill(" ".join(text.split()), initial_indent=first, subsequent_indent=later or " " * len(first), **wide))


def command(*arguments: str | Path) -> float:
    """Run the command line of this environment, showing it as a user would type it. Returns the seconds."""
    shown = " ".join(str(a).replace(f"{ROOT}/", "") for a in arguments)
    print()
    tell(f"pyfast {shown}", "$ ", "    ")
    sys.stdout.flush()
    started = perf_counter()
    called = [sys.executable, "-m", "pyfast.commands.cli", *map(str, arguments)]
    said = subprocess.run(called, check=True, stdout=subprocess.PIPE, text=True).stdout
    for line in said.splitlines():
        tell(line.replace(f"{ROOT}/", ""), "", "    ")
    return perf_counter() - started


def show_answers(chosen: list[dict[str, Any]], records: dict[str, pyfast.Record], right: set[str]) -> None:
    """Each question with its answer and, where that is wrong, the gold answer."""
    print(f"\nANSWERS of n2n: {len(right)} of {len(chosen)} are right (✓)\n")
    for question in chosen:
        record = records[question["id"]]
        is_right = question["id"] in right
        tell(question["question"], f" {'✓' if is_right else '✗'} ")
        said = record.answer if record.state == "answered" else f"({record.state})"
        said = shorten(str(said), 150, placeholder="…")
        tell(said if is_right else f"{said} (right: {question['answers'][0]})", "     → ")


def show_steps(question: dict[str, Any], run: pyfast.Run, index: pyfast.Index) -> None:
    """How n2n came to an answer: its plan, its searches, its evidence."""
    (record,) = (one for one in run.records if one.id == question["id"])
    calls = run.prompts(record.id)
    (gold,) = read_gold([question])
    gold, _, _ = with_rows(gold, rows_in(lambda: index))
    trace, aside = record.trace, " " * 11
    print(f"\nONE QUESTION STEP BY STEP ({question['type']}, over {', '.join(question['modalities'])})\n")
    tell(question["question"], " question  ", aside)
    planned = [call.completion.text for call in calls if call.prompt == "plan" and call.completion]
    plan = json.loads(planned[-1]) if planned and "plan_degraded" not in trace else {}
    for number, name in enumerate(("query", "second_query", "third_query")[: plan.get("hops", 0)], start=1):
        tell(plan[name], f" plan {number}    ", aside)
    if "plan_degraded" in trace:
        tell(f"one search: {trace['plan_degraded']}", " plan      ", aside)
    for number, step in enumerate(trace.get("hops", []), start=1):
        found = f"  →  {step['entity']}" if "entity" in step else ""
        tell(f"{step['query']}{found}", f" search {number}  ", aside)
    for item in record.evidence:
        mark = "*" if is_gold(item, gold) else " "
        snippet = f"{item.uri}: {item.line}"
        print(f" evidence {mark}{snippet if len(snippet) < WIDTH - 11 else f'{snippet[: WIDTH - 12]}…'}")
    tell(record.answer or f"({record.state})", " answer    ", aside)
    tell(question["answers"][0], " right     ", aside)
    print("\n * named by the gold evidence: a passage, or the row or fact that matters")


def main() -> None:
    """Index, answer, show."""
    shutil.rmtree(DEMO, ignore_errors=True)
    DEMO.mkdir()
    asked = lines(EXAMPLES / "questions.jsonl")
    chosen = asked[EVERY - 1 :: EVERY]
    questions = DEMO / "questions.jsonl"
    questions.write_text("".join(json.dumps(q) + "\n" for q in chosen), encoding="utf-8")

    command("index", EXAMPLES / "corpus", "--out", DEMO / "index")
    seconds = {}
    for system, settings in SYSTEMS.items():
        given: list[str | Path] = ["--index", DEMO / "index", "--run", DEMO / system, "--system", system]
        given += [] if LLM == "embedded" else ["--llm", LLM]
        given += [argument for setting in settings for argument in ("--set", setting)]
        seconds[system] = command("answer", questions, *given, "--concurrency", "8")

    reports = {system: pyfast.evaluate(DEMO / system) for system in SYSTEMS}
    right = {one.id for one in reports["n2n"].questions if one.figures["em"] == 1}
    run = pyfast.Run(DEMO / "n2n")
    show_answers(chosen, {record.id: record for record in run.records}, right)
    # The right answer after the most steps or, if none is right, the question with the best evidence.
    found = {one.id: one.figures["evidence_recall"] or 0.0 for one in reports["n2n"].questions}
    best = max(chosen, key=lambda it: (it["type"] if it["id"] in right else "", found[it["id"]]))
    show_steps(best, run, pyfast.open_index(DEMO / "index"))

    print("\nTHE SYSTEMS SIDE BY SIDE, with the same small model\n")
    print("            EM     F1  evidence recall  seconds   tokens")
    print(f" {'─' * 56}")
    for system, report in reports.items():
        figures = report.rows[0].figures
        em, f1 = (f"{figures[name].value:.3f}" for name in ("em", "f1"))
        recall = f"{figures['evidence_recall'].value:.3f}" if system != "direct" else "–"
        status = pyfast.Run(DEMO / system).status
        tokens = f"{status.prompt_tokens + status.completion_tokens:,}"
        print(
            f" {system:6}  {em}  {f1}  {recall:>15}  {seconds[system]:7.0f}  {tokens:>7}   {ABOUT[system]}"[:WIDTH]
        )

    print("\nWHERE TO LOOK NEXT\n")
    tell("pyfast report demo/n2n --out demo/report", " every question as a web page:   ")
    tell("pyfast show demo/n2n ex-09 --prompts", " what the model read and wrote:  ")
    tell("pyfast compare demo/rag demo/n2n", " is the difference chance?       ")
    tell("pyfast distill demo/n2n --out demo/learned", " examples for your own model:    ")
    tell("pyfast export demo/n2n --out A.xlsx --sources", " a table with all sources:       ")
    tell("pyfast corpus sync demo/index FOLDER", " when your files change:         ")
    tell("docs/quickstart.md, docs/howto/llm-server.md", " your documents, your model:     ")
    print()
    tell(
        "The model is SmolLM2-135M, which comes with pip and runs on any CPU. It is small: what you see is how the"
        " systems work, not how well. For quality, give them a large model:"
    )
    tell("pyfast answer QUESTIONS --index IDX --run RUN --llm openai:MODEL@http://HOST:PORT", "    ", "        ")


if __name__ == "__main__":
    main()
