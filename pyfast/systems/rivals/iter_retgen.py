"""ITER-RETGEN: search and generation take turns. A search's query is the last generation and the question,
and a generation reads the passages of the preceding search."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from pyfast.engine import Answer, Context, Question
from pyfast.retrieval import traced
from pyfast.systems import system
from pyfast.systems.prompts import ANSWER, answer_prompt, final_text, unless_known
from pyfast.systems.rivals.common import NOTHING, REASONED, reasoned_prompt, unstreamed


class Settings(system.Abstaining):
    """The parameters from the paper."""

    iterations: int = Field(
        default=2,
        ge=1,
        le=20,
        description="Number of iterations (T). Each is one search and one generation. 1: ordinary "
        "retrieval-augmented generation.",
        json_schema_extra={"paper": "the number of iterations T, 1 to 7 in the experiments"},
    )
    k: system.PassageCount = Field(
        default=5,
        ge=1,
        description="Number of passages and table rows retrieved per iteration.",
        json_schema_extra={"paper": "the experiments retrieve 5 paragraphs"},
    )
    reasoning: bool = Field(
        default=True,
        description="Generate steps of reasoning and an answer, both of which go into the next query. Off:"
        " generate only an answer.",
        json_schema_extra={"paper": "chain-of-thought prompting, or direct prompting"},
    )


async def answer(question: Question, ctx: Context, settings: Settings) -> Answer:
    """Answer a question in T iterations. The answer is that of the last generation."""
    steps: list[dict[str, Any]] = []
    trace = {"steps": steps}
    pool, generation, found = NOTHING, "", None
    ctx.so_far(lambda: Answer(None, ctx.evidence(pool), trace))
    for number in range(1, settings.iterations + 1):
        # Generation-augmented retrieval
        query = f"{generation} {question.text}".lstrip()
        pool = await ctx.retrieve(query, settings.k)
        steps.append({"query": query, **traced(pool)})

        # Retrieval-augmented generation. Only the last one is the answer.
        final = number == settings.iterations
        if settings.reasoning:
            prompt = unless_known(reasoned_prompt(ctx, pool), settings.abstain)
            prompt = prompt if final else unstreamed(prompt)
            context = await ctx.narrative(pool, prompt)
            reply = await ctx.generate(prompt, context=context, question=question.text)
            found, generation = final_text(reply.answer), reply.reasoning.strip()
            steps[-1]["reasoning"] = generation
        else:
            short = unless_known(answer_prompt(ctx, pool), settings.abstain)
            short = short if final else unstreamed(short)
            context = await ctx.narrative(pool, short)
            direct = await ctx.generate(short, context=context, path="", question=question.text)
            found, generation = final_text(direct.answer), ""
        steps[-1]["answer"] = found
        generation = f"{generation} {found or ''}".strip()
    return Answer(found, ctx.evidence(pool), trace)


SYSTEM = system.System(
    "iter_retgen",
    answer,
    Settings,
    (REASONED, ANSWER),
    summary="search and generation take turns, and the last generation is part of the next query",
    paper="Enhancing Retrieval-Augmented Large Language Models with Iterative Retrieval-Generation Synergy",
)
