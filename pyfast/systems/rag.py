"""Baseline: plain retrieval-augmented generation, with one search and one LLM call."""

from __future__ import annotations

from pydantic import Field

from pyfast.engine import Answer, Context, Question
from pyfast.systems import system
from pyfast.systems.prompts import ANSWER, LONG_ANSWER, answer_prompt, final_text, long_text, unless_known


class Settings(system.Reading, system.Answering):
    """The settings of rag."""

    k: int = Field(default=10, ge=1, le=10_000, description="Number of passages and table rows retrieved.")


async def answer(question: Question, ctx: Context, settings: Settings) -> Answer:
    """Search once for a question, and answer it from the passages found, with one call of the LLM."""
    pool = await ctx.retrieve(question.text, settings.k)
    ctx.so_far(lambda: Answer(None, ctx.evidence(pool)))
    if settings.long_answer:
        context = await ctx.narrative(pool, LONG_ANSWER, question.text, settings.evidence_share)
        long = await ctx.generate(LONG_ANSWER, context=context, question=question.text)
        return Answer(long_text(long.paragraphs), ctx.evidence(pool))
    prompt = unless_known(answer_prompt(ctx, pool), settings.abstain)
    context = await ctx.narrative(pool, prompt, question.text, settings.evidence_share)
    reply = await ctx.generate(prompt, context=context, path="", question=question.text)
    return Answer(final_text(reply.answer), ctx.evidence(pool))


SYSTEM = system.System(
    "rag",
    answer,
    Settings,
    (ANSWER, LONG_ANSWER),
    summary="baseline: one search, its list as it is, one call of the LLM",
    paper="a baseline of N2N-GQA",
)
