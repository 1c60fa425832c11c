"""What `make demo` runs: index the example corpus, answer questions on it, show each beside its gold answer.

Everything goes through the command line, as a user would call it. The folder `demo/` keeps the index and the run.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from pyfast import Run

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
DEMO = ROOT / "demo"
CHOSEN = {"1-hop": 1, "2-hop": 4, "3-hop": 3}
# Small contexts: a small model loses its way in the paper's 25 documents, and a CPU reads them for half a minute.
SETTINGS = ["hop_k=10", "hop_min=2", "hop_max=3", "final_min=3", "final_max=5", "ranking=bridge_rank"]


def lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON lines file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def pyfast(*arguments: str | Path) -> None:
    """Run the command line of this environment, showing it as a user would type it."""
    shown = " ".join(str(a).replace(f"{ROOT}/", "") for a in arguments)
    print(f"\n$ pyfast {shown}", flush=True)
    subprocess.run([sys.executable, "-m", "pyfast.commands.cli", *map(str, arguments)], check=True)


def show(question: dict[str, Any], record: dict[str, Any]) -> None:
    """One question: what was asked, searched, found and answered, beside what is right."""
    print(f"\n{question['id']} ({question['type']}, over {' + '.join(question['modalities'])})")
    print(f"  question  {question['question']}")
    for step in record["trace"].get("hops", []):
        found = f"  ->  {step['entity']}" if "entity" in step else ""
        print(f"  search    {step['query']}{found}")
    if "plan_degraded" in record["trace"]:
        print(f"            (one search: {record['trace']['plan_degraded']})")
    for piece in record["evidence"][:3]:
        gold = "*" if piece["uri"] in question["supporting"] else " "
        snippet = " ".join(piece["snippet"].split())
        print(f"  evidence {gold}{piece['uri']}: {snippet[:90]}")
    said = record["answer"] if record["state"] == "answered" else f"({record['state']})"
    print(f"  answer    {said}")
    print(f"  gold      {question['answers'][0]}")


def main() -> None:
    """Index, answer, evaluate, show."""
    shutil.rmtree(DEMO, ignore_errors=True)
    DEMO.mkdir()
    asked = lines(EXAMPLES / "questions.jsonl")
    of_type = {kind: [q for q in asked if q["type"] == kind] for kind in CHOSEN}
    chosen = [question for kind, count in CHOSEN.items() for question in of_type[kind][:count]]
    questions = DEMO / "questions.jsonl"
    questions.write_text("".join(json.dumps(q) + "\n" for q in chosen), encoding="utf-8")

    pyfast("index", EXAMPLES / "corpus", "--out", DEMO / "index")
    settings = [argument for setting in SETTINGS for argument in ("--set", setting)]
    pyfast("answer", questions, "--index", DEMO / "index", "--run", DEMO / "run", "--concurrency", "8", *settings)

    records = {record.id: record.as_json() for record in Run(DEMO / "run").records}
    for question in chosen:
        show(question, records[question["id"]])
    print("\n(* marks evidence from a gold source)")
    pyfast("evaluate", DEMO / "run", "--gold", questions)
    print(
        "\nThe model is SmolLM2-135M, small enough to come with pip. It plans clumsily, reads off names that\n"
        "stand next to the question's words, and is wrong most of the time, nearly always where facts must be\n"
        "combined. What you see is the machinery (plan, hops, evidence graph, answer with evidence; the evidence\n"
        "is mostly right), not the quality of the method. With a\n"
        "server of your own: pyfast answer QUESTIONS --index IDX --run RUN --llm openai:MODEL@http://HOST:PORT"
    )


if __name__ == "__main__":
    main()
