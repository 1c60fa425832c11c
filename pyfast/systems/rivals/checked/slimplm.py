"""SlimPLM: a small model answers first, without evidence. From its answer, another small model decides whether a
search is necessary, and what to search for. Then the LLM answers, with or without search results."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

from pyfast.engine import Answer, Context, Prompt, Question
from pyfast.retrieval import traced
from pyfast.systems import system
from pyfast.systems.combinations import Inert
from pyfast.systems.prompts import ANSWER, DIRECT, final_text, tidied, unless_known
from pyfast.systems.rivals.common import NOTHING, answer_from, retrieve_each, usable
from pyfast.systems.together import together


class HeuristicFields(BaseModel):
    """The answer of the small model."""

    answer: str = Field(max_length=800)


HEURISTIC = Prompt(
    name="heuristic",
    system=(
        "You answer questions from what you know, in a few sentences that say what the answer rests on. Reply in"
        " JSON with the field answer, of at most 800 characters."
    ),
    user="Question: $question",
    answer=HeuristicFields,
    max_tokens=500,
    role="draft",
)


class NecessityFields(BaseModel):
    """Whether an answer can be trusted."""

    known: bool


NECESSITY = Prompt(
    name="necessity",
    system=(
        "A small model answered a question from what it knows. Decide whether a larger model knows the correct"
        " answer without looking anything up. Reply in JSON with the field known: true if the answer is right"
        " and complete, or about what everybody knows; false if it is vague, contradicts itself, avoids the"
        " question, or may be invented or out of date."
    ),
    user="Question: $question\nAnswer of the small model: $heuristic",
    answer=NecessityFields,
    max_tokens=60,
    role="judge",
)


class Claim(BaseModel):
    """A claim, and a query that finds out whether it is right."""

    claim: str = Field(max_length=300)
    query: str = Field(max_length=200)


class QueriesFields(BaseModel):
    """What to search for."""

    queries: list[str] = Field(max_length=3)
    claims: list[Claim] = Field(max_length=5)


QUERIES = Prompt(
    name="queries",
    system=(
        "You write queries for a search that helps to answer a question. A small model answered it before. Reply"
        " in JSON. queries: what to look up for the question itself, the most important first, at most 3 of at"
        " most 200 characters each; claims: at most 5 objects, for the claims of the small model's answer on"
        " which the answer depends, with claim, one fact that can be understood alone, in at most 300"
        " characters, and query, with which a search finds out whether it is right, in at most 200 characters."
    ),
    user="Question: $question\nAnswer of the small model: $heuristic",
    answer=QueriesFields,
    max_tokens=1200,
    role="plan",
)


class Settings(system.Abstaining):
    """The parameters from the paper."""

    inert: ClassVar[tuple[Inert, ...]] = (Inert(("claim_filter",), "query", ("question",)),)

    retrieve: Literal["judged", "always"] = Field(
        default="judged",
        description="When to search. `judged`: if the small model's answer shows a need. `always`: for every"
        " question.",
        json_schema_extra={"paper": "retrieval necessity judgment; left out in the ablation"},
    )
    query: Literal["rewritten", "question"] = Field(
        default="rewritten",
        description="What to search for. `rewritten`: queries that the LLM writes from the question and the"
        " small model's answer. `question`: the question itself.",
        json_schema_extra={"paper": "query rewriting; left out in the ablation"},
    )
    claim_filter: bool = Field(
        default=True,
        description="Leave out queries for claims of the small model that the LLM judges to be true.",
        json_schema_extra={"paper": "claim-based query filter; left out in the ablation"},
    )
    k: system.PassageCount = Field(
        default=5,
        ge=1,
        description="Number of passages and table rows that the LLM reads.",
    )


async def answer(question: Question, ctx: Context, settings: Settings) -> Answer:
    """Answer a question, after a search if a small model's answer makes it necessary."""
    trace: dict[str, Any] = {}
    pool = NOTHING
    ctx.so_far(lambda: Answer(None, ctx.evidence(pool), trace))
    heuristic = ""
    if settings.retrieve == "judged" or settings.query == "rewritten":
        heuristic = trace["heuristic"] = (await ctx.generate(HEURISTIC, question=question.text)).answer.strip()
    if settings.retrieve == "judged":
        trace["known"] = await known(question.text, heuristic, ctx)
        if trace["known"]:
            reply = await ctx.generate(unless_known(DIRECT, settings.abstain), question=question.text)
            return Answer(final_text(reply.answer), trace=trace)
    queries = [question.text]
    if settings.query == "rewritten":
        queries = await rewritten(question, heuristic, ctx, settings)
    pool = await retrieve_each(queries, settings.k, ctx)
    trace["steps"] = [{"query": "; ".join(queries), **traced(pool)}]
    text = await answer_from(pool, question, ctx, settings.abstain)
    return Answer(text, ctx.evidence(pool), trace)


async def known(asked: str, heuristic: str, ctx: Context) -> bool:
    """Let the LLM judge whether an answer to a question can be trusted. Without a usable reply, the answer is not
    trusted."""
    reply = await usable(ctx, NECESSITY, question=asked, heuristic=heuristic)
    return reply is not None and reply.known


async def rewritten(question: Question, heuristic: str, ctx: Context, settings: Settings) -> list[str]:
    """Make queries from a question and the claims in an answer. Without a usable query, the question is the
    query."""
    reply = await usable(ctx, QUERIES, question=question.text, heuristic=heuristic)
    if reply is None:
        return [question.text]
    claims = reply.claims
    if settings.claim_filter:
        are_known = await together(known(one.query, one.claim, ctx) for one in claims)
        claims = [one for one, is_known in zip(claims, are_known, strict=True) if not is_known]
    return tidied([*reply.queries, *(one.query for one in claims)]) or [question.text]


SYSTEM = system.System(
    "slimplm",
    answer,
    Settings,
    (HEURISTIC, NECESSITY, QUERIES, DIRECT, ANSWER),
    summary="a small model's answer decides whether the LLM needs a search, and for what",
    paper="Small Models, Big Insights: Leveraging Slim Proxy Models To Decide When and What to Retrieve for LLMs",
)
