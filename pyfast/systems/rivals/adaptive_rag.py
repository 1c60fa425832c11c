"""Adaptive-RAG: a classifier decides how complex a question is. The LLM then answers from its own knowledge,
from one search, or in several steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import BaseModel, Field

from pyfast.engine import Answer, Context, Prompt, Question
from pyfast.systems import direct, system
from pyfast.systems.prompts import DIRECT
from pyfast.systems.rivals import ircot
from pyfast.systems.rivals.common import REASONED, usable

Complexity = Literal["A", "B", "C"]


class ComplexityFields(BaseModel):
    """How complex a question is."""

    complexity: Complexity


CLASSIFY = Prompt(
    name="classify",
    system=(
        "You decide how a question is answered. Reply in JSON with the field complexity, one letter. A: you know"
        " the answer for certain, because it is common knowledge. B: one search finds a passage that states the"
        " answer. C: the answer needs several facts, which are found one after the other or compared. If you doubt"
        " between two letters, give the later one."
    ),
    user="Question: $question",
    answer=ComplexityFields,
    max_tokens=60,
    role="plan",
)


class Settings(system.Abstaining):
    """The parameters of the paper's three strategies."""

    k: system.PassageCount = Field(
        default=5,
        ge=1,
        description="Number of passages and table rows retrieved for a question that needs one search (class B).",
        json_schema_extra={"paper": "5 in the authors' code"},
    )
    step_k: system.PassageCount = Field(
        default=6,
        ge=1,
        description="Number of passages and table rows that each search adds for a complex question (class C).",
        json_schema_extra={"paper": "6 in the authors' code"},
    )
    steps: int = Field(
        default=8,
        ge=1,
        le=100,
        description="Maximum number of sentences of reasoning for a complex question (class C), as in `ircot`.",
    )
    paragraphs: int = Field(
        default=15,
        ge=1,
        le=10_000,
        description="Maximum number of paragraphs and table rows to collect for a complex question (class C).",
        json_schema_extra={"paper": "15 in the authors' code"},
    )


async def answer(question: Question, ctx: Context, settings: Settings) -> Answer:
    """Answer a question with the strategy for its class."""
    complexity, abstain = await complexity_of(question, ctx), settings.abstain
    ctx.so_far(lambda: Answer(None, trace={"complexity": complexity}))
    if complexity == "A":
        found = await direct.answer(question, ctx, system.Answering(abstain=abstain))
        return replace(found, trace={"complexity": complexity})
    k, steps, paragraphs = settings.step_k, settings.steps, settings.paragraphs
    if complexity == "B":
        k, steps, paragraphs = settings.k, 0, settings.k
    strategy = ircot.Settings(abstain=abstain, k=k, steps=steps, paragraphs=paragraphs)
    return await ircot.answer(question, ctx, strategy, complexity=complexity)


async def complexity_of(question: Question, ctx: Context) -> Complexity:
    """Let the LLM classify a question. If its reply is unusable, the question counts as complex."""
    reply = await usable(ctx, CLASSIFY, question=question.text)
    return reply.complexity if reply else "C"


SYSTEM = system.System(
    "adaptive_rag",
    answer,
    Settings,
    (CLASSIFY, DIRECT, ircot.SENTENCE, REASONED),
    summary="the LLM decides whether a question needs no search (`direct`), one search, or several (`ircot`)",
    paper="Adaptive-RAG: Learning to Adapt Retrieval-Augmented Large Language Models through Question Complexity",
)
