"""Rowen: the LLM answers a question, and paraphrases of it in two languages and with two models. If the
answers differ, the LLM may have invented its answer, and a search corrects it."""

from __future__ import annotations

from statistics import fmean
from typing import Any, ClassVar, Literal

from pydantic import Field

from pyfast.engine import Answer, Context, Prompt, Question
from pyfast.retrieval import traced
from pyfast.systems import system
from pyfast.systems.combinations import Inert
from pyfast.systems.prompts import COT, final_text, tidied, unless_known
from pyfast.systems.rivals.checked.rowen_prompts import (
    AGREEMENT,
    OTHER_SAYS,
    REPAIR,
    SAY,
    SEARCH,
    WORDINGS,
    SayFields,
)
from pyfast.systems.rivals.common import NOTHING, retrieve_each, unstreamed, usable
from pyfast.systems.together import together


class Settings(system.Abstaining):
    """The parameters from the paper."""

    inert: ClassVar[tuple[Inert, ...]] = (
        Inert(("language",), "consistency", ("models",)),
        Inert(("model_weight",), "consistency", ("languages", "models")),
    )

    consistency: Literal["languages", "models", "both"] = Field(
        default="languages",
        description="Which answers are compared: those in two languages, those of two models, or both. For"
        " `models` and `both`, give the role `draft` a second model.",
        json_schema_extra={"paper": "Rowen-CL, Rowen-CM and Rowen-Hybrid"},
    )
    wordings: int = Field(
        default=6,
        ge=1,
        le=20,
        description="Number of paraphrases of the question.",
        json_schema_extra={"paper": "the number k of perturbed questions"},
    )
    language: str = Field(
        default="Chinese",
        min_length=1,
        max_length=40,
        description="The second language, by its English name.",
        json_schema_extra={"paper": "English and Chinese"},
    )
    model_weight: float = Field(
        default=0.25,
        ge=0,
        le=100,
        description="Weight of the agreement between models. The agreement between languages has the weight 1.",
        json_schema_extra={"paper": "the weight α"},
    )
    threshold: float = Field(
        default=0.6,
        ge=0,
        le=100,
        description="The LLM corrects the answer from a search if the share of agreeing answers is below this"
        " threshold. With `consistency=both`, the threshold is compared with a sum: the share among languages plus"
        " `model_weight` times the share among models.",
        json_schema_extra={"paper": "the threshold of the consistency score"},
    )
    k: system.PassageCount = Field(
        default=5,
        ge=1,
        description="Number of passages and table rows that the LLM reads to correct an answer.",
    )


async def answer(question: Question, ctx: Context, settings: Settings) -> Answer:
    """Answer a question from the LLM's own knowledge, and correct the answer if paraphrases lead to different
    answers."""
    trace: dict[str, Any] = {}
    pool = NOTHING
    ctx.so_far(lambda: Answer(None, ctx.evidence(pool), trace))
    first = await ctx.generate(unstreamed(unless_known(COT, settings.abstain)), question=question.text)
    trace |= {"first": first.answer, "reasoning": first.reasoning}
    trace["consistency"] = share = await consistency(question, ctx, settings, trace)
    if share >= settings.threshold:
        return Answer(final_text(first.answer), trace=trace)
    told = {"question": question.text, "reasoning": first.reasoning, "answer": first.answer}
    wanted = await usable(ctx, SEARCH, **told)
    queries = tidied(wanted.queries if wanted else []) or [question.text]
    pool = await retrieve_each(queries, settings.k, ctx)
    trace["steps"] = [{"query": "; ".join(queries), **traced(pool)}]
    prompt = unless_known(REPAIR, settings.abstain)
    reply = await ctx.generate(prompt, context=await ctx.narrative(pool, prompt), **told)
    return Answer(final_text(reply.answer), ctx.evidence(pool), trace)


async def consistency(question: Question, ctx: Context, settings: Settings, trace: dict[str, Any]) -> float:
    """Return how consistent the answers to a question's paraphrases are. Without paraphrases, the answers count as
    inconsistent."""
    language = "none: translation is empty" if settings.consistency == "models" else settings.language
    told = {"count": str(settings.wordings), "language": language, "question": question.text}
    reply = await usable(ctx, WORDINGS, **told)
    wordings = reply.wordings[: settings.wordings] if reply else []
    compared = [of for of in ("languages", "models") if settings.consistency in (of, "both")]
    # All answers come first, and then all comparisons, so that a budget always ends at the same call.
    asked = [
        [
            (SAY, one.question),
            *((SAY, one.translation) if of == "languages" else (OTHER_SAYS, one.question) for of in compared),
        ]
        for one in wordings
    ]
    answers = iter(await together(said(*call, ctx) for calls in asked for call in calls))
    answered = [[(text, next(answers)) for _, text in calls] for calls in asked]
    agree = iter(await together(agreed(*first, *other, ctx) for first, *others in answered for other in others))
    trace["wordings"] = [
        {
            **wording.model_dump(),
            "answer": first,
            **{
                of: {"answer": other, "agrees": next(agree)}
                for of, (_, other) in zip(compared, others, strict=True)
            },
        }
        for wording, ((_, first), *others) in zip(wordings, answered, strict=True)
    ]
    shares = [fmean([one[of]["agrees"] for one in trace["wordings"]] or [0.0]) for of in compared]
    return shares[0] + settings.model_weight * sum(shares[1:])


async def said(prompt: Prompt[SayFields], asked: str, ctx: Context) -> str:
    """Let a model answer a paraphrase. Without a usable reply, the answer is empty, and agrees with no other
    answer."""
    reply = await usable(ctx, prompt, question=asked)
    return reply.answer.strip() if reply else ""


async def agreed(question: str, first: str, other: str, second: str, ctx: Context) -> bool:
    """Let the LLM compare two answers. Without a usable reply, the answers count as different."""
    if not first or not second:
        return False
    reply = await usable(ctx, AGREEMENT, question=question, first=first, other=other, second=second)
    return reply is not None and reply.agree


SYSTEM = system.System(
    "rowen",
    answer,
    Settings,
    (COT, WORDINGS, SAY, OTHER_SAYS, AGREEMENT, SEARCH, REPAIR),
    summary="a search corrects the answer if paraphrases of the question lead to different answers",
    paper="Retrieve Only When It Needs: Adaptive Retrieval Augmentation for Hallucination Mitigation in Large"
    " Language Models",
)
