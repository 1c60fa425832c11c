"""Baseline: the LLM answers from its own knowledge, without evidence."""

from __future__ import annotations

from pyfast.engine import Answer, Context, Question
from pyfast.systems.prompts import DIRECT, LONG_DIRECT, final_text, long_text, unless_known
from pyfast.systems.system import Answering, System


async def answer(question: Question, ctx: Context, settings: Answering) -> Answer:
    """Answer a question with one LLM call, without evidence."""
    if settings.long_answer:
        return Answer(long_text((await ctx.generate(LONG_DIRECT, question=question.text)).paragraphs))
    reply = await ctx.generate(unless_known(DIRECT, settings.abstain), question=question.text)
    return Answer(final_text(reply.answer))


SYSTEM = System(
    "direct",
    answer,
    Answering,
    (DIRECT, LONG_DIRECT),
    needs_index=False,
    summary="baseline: the LLM's own knowledge, in one call, without evidence",
    paper="a baseline of SubQRAG",
)
