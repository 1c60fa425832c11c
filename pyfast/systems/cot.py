"""Baseline: chain of thought. The LLM reasons before it answers, without evidence."""

from __future__ import annotations

from pyfast.engine import Answer, Context, Question
from pyfast.systems.prompts import COT, LONG_COT, final_text, long_text, unless_known
from pyfast.systems.system import Answering, System


async def answer(question: Question, ctx: Context, settings: Answering) -> Answer:
    """Answer a question with one call of the LLM, which writes steps of reasoning and then the answer."""
    if settings.long_answer:
        long = await ctx.generate(LONG_COT, question=question.text)
        return Answer(long_text(long.paragraphs), trace={"reasoning": long.reasoning})
    reply = await ctx.generate(unless_known(COT, settings.abstain), question=question.text)
    return Answer(final_text(reply.answer), trace={"reasoning": reply.reasoning})


SYSTEM = System(
    "cot",
    answer,
    Answering,
    (COT, LONG_COT),
    needs_index=False,
    summary="baseline: chain of thought, the LLM alone, without evidence",
    paper="a baseline of MTQA",
)
