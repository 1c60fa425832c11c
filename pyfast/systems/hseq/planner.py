"""A system that only writes HSEQ's guidance. Training the policy uses it to write guidance for the training
questions."""

from __future__ import annotations

from pyfast.engine import Answer, Context, Question
from pyfast.errors import AnswerError
from pyfast.systems import system
from pyfast.systems.hseq.guidance import GUIDE, guidance_text


async def plan(question: Question, ctx: Context, settings: system.Settings) -> Answer:
    """Return the guidance as the answer. If the LLM's reply is malformed, the answer has no text."""
    try:
        return Answer(guidance_text(await ctx.generate(GUIDE, question=question.text)))
    except AnswerError as error:
        ctx.fell_back(GUIDE, error)
        return Answer(None)


PLANNER = system.System("hseq_guidance", plan, system.Settings, (GUIDE,), needs_index=False)
