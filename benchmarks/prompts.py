"""How good the prompt of n2n's plan is alone: valid replies at the first attempt, and what its first search finds.

python benchmarks/prompts.py QUESTIONS.jsonl INDEX [--limit 40] [--llm embedded]

Run it once with each version of the prompt. Questions need `supporting`. It asks tuning questions only: those with
an odd blake2b(id).
"""

from __future__ import annotations

import argparse
import json
from hashlib import blake2b
from pathlib import Path

import pyfast
from pyfast.engine import Answer, Context, Question
from pyfast.errors import AnswerError
from pyfast.systems import Settings, System
from pyfast.systems.prompts import PLAN, plan_prompt


async def plan(question: Question, ctx: Context, settings: Settings) -> Answer:
    """One call, then the first search of the plan, with its alternatives."""
    try:
        fields = await ctx.generate(plan_prompt(question.text), question=question.text)
    except AnswerError:
        return Answer(None)
    pool = await ctx.retrieve_all((fields.query, *fields.alternatives), 10)
    return Answer(str(fields.hops), ctx.evidence(pool.head(10)))


def main() -> None:
    """Ask, and print valid replies, their hops and the recall of the gold evidence."""
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("questions", type=Path)
    given.add_argument("index", type=Path)
    given.add_argument("--limit", type=int, default=40)
    given.add_argument("--llm", default="embedded")
    options = given.parse_args()
    asked = [json.loads(line) for line in options.questions.read_text(encoding="utf-8").splitlines()]
    asked = [one for one in asked if blake2b(one["id"].encode()).digest()[-1] % 2][: options.limit]
    system = System("plan_alone", plan, Settings, (PLAN,))
    budget = {"attempts": 1}
    run = pyfast.answer(asked, index=options.index, llm=options.llm, system=system, budget=budget, concurrency=8)
    hops = [record.answer for record in run.records]
    print(f"valid: {sum(answer is not None for answer in hops)} of {len(hops)}")
    print("hops:", {number: hops.count(number) for number in ("1", "2", "3")})
    recalls = []
    for record, one in zip(run.records, asked, strict=True):
        gold, found = set(one["supporting"]), {item.uri for item in record.evidence}
        recalls.append(len(gold & found) / len(gold))
    print(f"recall of the gold documents: {sum(recalls) / len(recalls):.3f}")


if __name__ == "__main__":
    main()
