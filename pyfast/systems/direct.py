"""Baseline: the LLM's own knowledge, no evidence."""

from __future__ import annotations

from pyfast.engine import Answer, Context, Question
from pyfast.systems.prompts import DIRECT, final_text
from pyfast.systems.system import Settings, System


async def answer(question: Question, ctx: Context, settings: Settings) -> Answer:
    """Ask."""
    reply = await ctx.generate(DIRECT, question=question.text)
    return Answer(final_text(reply.answer))


SYSTEM = System(
    "direct",
    answer,
    Settings,
    (DIRECT,),
    needs_index=False,
    summary="baseline: what the LLM knows, in one call, without evidence",
    paper="a baseline of SubQRAG",
)
