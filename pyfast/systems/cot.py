"""Baseline: chain of thought. The LLM reasons before it answers, without evidence."""

from __future__ import annotations

import json
from functools import cache
from typing import ClassVar, TypeVar

from pydantic import BaseModel, Field

from pyfast.engine import Answer, Context, Prompt, Question
from pyfast.systems.combinations import Inert
from pyfast.systems.prompts import COT, LONG_COT, final_text, long_text, unless_known
from pyfast.systems.system import Answering, System

M = TypeVar("M", bound=BaseModel)

EXAMPLES = (
    (
        "In which country was the author of Pippi Longstocking born?",
        "The author of Pippi Longstocking is Astrid Lindgren. She was born in Vimmerby, a town in Sweden.",
        "Sweden",
    ),
    (
        "Who was older, the author of Emil and the Detectives or its illustrator?",
        "The author is Erich Kästner, born in 1899. The illustrator is Walter Trier, born in 1890.",
        "Walter Trier",
    ),
    (
        "Do the Elbe and the Loire flow into the same sea?",
        "The Elbe flows into the North Sea. The Loire flows into the Bay of Biscay.",
        "no",
    ),
    (
        "How many years after the first powered flight did humans land on the Moon?",
        "The first powered flight was in 1903. Humans first landed on the Moon in 1969. 1969 - 1903 = 66.",
        "66",
    ),
)
"""Worked examples: a question, the reasoning, the answer"""


class Settings(Answering):
    """The settings of cot."""

    inert: ClassVar[tuple[Inert, ...]] = (*Answering.inert, Inert(("examples",), "long_answer", (True,)))

    examples: int = Field(
        default=0,
        ge=0,
        le=len(EXAMPLES),
        description="Number of worked examples in the prompt (few-shot). 0: the prompt only asks for steps.",
        json_schema_extra={"paper": "Wei et al. 2022: chain-of-thought prompting"},
    )


async def answer(question: Question, ctx: Context, settings: Settings) -> Answer:
    """Answer a question with one LLM call, which writes steps of reasoning and then the answer."""
    if settings.long_answer:
        long = await ctx.generate(LONG_COT, question=question.text)
        return Answer(long_text(long.paragraphs), trace={"reasoning": long.reasoning})
    prompt = few_shot(unless_known(COT, settings.abstain), settings.examples)
    reply = await ctx.generate(prompt, question=question.text)
    return Answer(final_text(reply.answer), trace={"reasoning": reply.reasoning})


@cache
def few_shot(prompt: Prompt[M], examples: int) -> Prompt[M]:
    """Put worked examples before the question in a prompt whose reply contains reasoning and an answer."""
    worked = "".join(
        f"Question: {question}\n{json.dumps({'reasoning': reasoning, 'answer': answer}, ensure_ascii=False)}\n\n"
        for question, reasoning, answer in EXAMPLES[:examples]
    )
    return prompt.overridden(user=prompt.user.replace("Question: $", f"{worked}Question: $")) if worked else prompt


SYSTEM = System(
    "cot",
    answer,
    Settings,
    (COT, LONG_COT),
    needs_index=False,
    summary="baseline: chain of thought by the LLM alone, without evidence",
    paper="a baseline of MTQA",
)
