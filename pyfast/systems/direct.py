"""Baseline: the LLM's own knowledge, no evidence."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from pyfast.engine import Answer, Context, Question
from pyfast.systems.prompts import DIRECT, final_text


class Settings(BaseModel):
    """None."""

    model_config = ConfigDict(frozen=True, extra="forbid")


async def answer(question: Question, ctx: Context, settings: Settings) -> Answer:
    """Ask."""
    reply = await ctx.generate(DIRECT, question=question.text)
    return Answer(final_text(reply.answer))
