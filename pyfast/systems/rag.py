"""Baseline: vanilla retrieval-augmented generation. One search, its list as it is, one call."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from pyfast.engine import Answer, Context, Question
from pyfast.systems.prompts import ANSWER, final_text


class Settings(BaseModel):
    """`k`: units retrieved."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    k: int = Field(default=10, ge=1)


async def answer(question: Question, ctx: Context, settings: Settings) -> Answer:
    """Retrieve, answer."""
    pool = await ctx.retrieve(question.text, k=settings.k)
    context = ctx.narrative(pool, ANSWER.max_tokens)
    reply = await ctx.generate(ANSWER, context=context, path="", question=question.text)
    return Answer(final_text(reply.answer), list(pool))
