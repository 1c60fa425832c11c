"""How good one prompt is alone, on tuning questions: those with an odd blake2b(id).

python benchmarks/prompts.py plan QUESTIONS.jsonl INDEX             # n2n's plan
python benchmarks/prompts.py extract_triples QUESTIONS.jsonl INDEX  # SubQRAG's triples of passages

`plan` prints the valid replies at the first attempt, and the recall of the plan's first search. Its questions need
`supporting`. `extract_triples` reads the best five passages of each question, and prints how many triples these
passages support, and how often a supported triple names an answer that is in the passages.

Run it once with each version of the prompt: `--prompts FILE.toml` replaces the prompt.
"""

from __future__ import annotations

import argparse
import json
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyfast
from pyfast.engine import Answer, Context, Question, Record
from pyfast.errors import AnswerError
from pyfast.knowledge.support import supported_statements
from pyfast.systems import Settings, System
from pyfast.systems.prompts import PLAN, plan_prompt
from pyfast.systems.subqrag.prompts import EXTRACT_TRIPLES


async def plan(question: Question, ctx: Context, settings: Settings) -> Answer:
    """One call, then the first search of the plan, with its alternatives."""
    try:
        fields = await ctx.generate(plan_prompt(question.text), question=question.text)
    except AnswerError:
        return Answer(None)
    pool = await ctx.retrieve_all((fields.query, *fields.alternatives), 10)
    return Answer(str(fields.hops), ctx.evidence(pool.head(10)))


async def extract_triples(question: Question, ctx: Context, settings: Settings) -> Answer:
    """One search and one call, as SubQRAG does when the graph has no answer."""
    pool = await ctx.retrieve(question.text, 5)
    context = await ctx.narrative(pool, EXTRACT_TRIPLES)
    try:
        fields = await ctx.generate(EXTRACT_TRIPLES, context=context, question=question.text)
    except AnswerError:
        return Answer(None)
    texts = [[(0, ctx.index.text(passage))] for passage in pool.passages.tolist()]
    supported = supported_statements(fields.triples, *texts).statements
    names = [[one.head, one.tail] for one in supported]
    return Answer(json.dumps([len(fields.triples), names]), ctx.evidence(pool))


def report_plan(records: list[Record], asked: list[dict[str, Any]]) -> None:
    """Print the hops, and the recall of the gold documents."""
    hops = [record.answer for record in records]
    print("hops:", {number: hops.count(number) for number in ("1", "2", "3")})
    recalls = []
    for record, question in zip(records, asked, strict=True):
        gold, uris = set(question["supporting"]), {item.uri for item in record.evidence}
        recalls.append(len(gold & uris) / len(gold))
    print(f"recall of the gold documents: {sum(recalls) / len(recalls):.3f}")


def report_triples(records: list[Record], asked: list[dict[str, Any]]) -> None:
    """Print how many triples are supported, and how often one names an answer."""
    written = supported = readable = named = 0
    for record, question in zip(records, asked, strict=True):
        answers = [answer.lower() for answer in question["answers"]]
        count, names = json.loads(record.answer or "[0, []]")
        written, supported = written + count, supported + len(names)
        if any(answer in item.snippet.lower() for answer in answers for item in record.evidence):
            readable += 1
            named += any(answer in name.lower() for answer in answers for pair in names for name in pair)
    print(f"triples: {written}, supported: {supported}")
    print(f"a supported triple names the answer: {named} of {readable} questions whose passages contain it")


ALONE: dict[str, tuple[Any, Any, Any]] = {
    "plan": (plan, PLAN, report_plan),
    "extract_triples": (extract_triples, EXTRACT_TRIPLES, report_triples),
}


def main() -> None:
    """Ask, and print the valid replies and what they are good for."""
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("prompt", choices=ALONE)
    given.add_argument("questions", type=Path)
    given.add_argument("index", type=Path)
    given.add_argument("--limit", type=int, default=40)
    given.add_argument("--llm", default="embedded")
    given.add_argument("--prompts", type=Path)
    options = given.parse_args()
    asked = [json.loads(line) for line in options.questions.read_text(encoding="utf-8").splitlines()]
    asked = [one for one in asked if blake2b(one["id"].encode()).digest()[-1] % 2][: options.limit]
    function, prompt, report = ALONE[options.prompt]
    system = System(f"{options.prompt}_alone", function, Settings, (prompt,))
    run = pyfast.answer(
        asked,
        index=options.index,
        llm=options.llm,
        system=system,
        budget={"attempts": 1},
        concurrency=8,
        options=pyfast.RunOptions(prompts=options.prompts),
    )
    records = list(run.records)
    print(f"valid: {sum(record.answer is not None for record in records)} of {len(records)}")
    report(records, asked)


if __name__ == "__main__":
    main()
