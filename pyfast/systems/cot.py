"""Baseline: chain of thought, no evidence."""

from __future__ import annotations

from pyfast.engine import Answer, Context, Question
from pyfast.systems.prompts import COT, final_text
from pyfast.systems.system import Settings, System


async def answer(question: Question, ctx: Context, settings: Settings) -> Answer:
    """Ask for steps, then for the answer."""
    reply = await ctx.generate(COT, question=question.text)
    return Answer(final_text(reply.answer), trace={"reasoning": reply.reasoning})


SYSTEM = System(
    "cot",
    answer,
    Settings,
    (COT,),
    needs_index=False,
    summary="baseline: chain of thought, the LLM alone, without evidence",
    paper="a baseline of MTQA",
)
