"""Baseline: plain retrieval-augmented generation, with one search and one LLM call."""

from __future__ import annotations

from pydantic import Field

from pyfast.engine import Answer, Context, Question
from pyfast.retrieval import Pool, RerankConfig, rerank_pools
from pyfast.systems import system
from pyfast.systems.effort import passages_to_read
from pyfast.systems.prompts import ANSWER, LONG_ANSWER, answer_prompt, final_text, long_text, unless_known

_RANKED = 50  # With `effort=auto`, an evidence graph ranks this many passages, and at most `k` are read.


class Settings(system.Reading, system.Answering):
    """The settings of rag."""

    k: system.PassageCount = Field(default=10, ge=1, description="Number of passages and table rows retrieved.")


async def answer(question: Question, ctx: Context, settings: Settings) -> Answer:
    """Search once for a question, and answer it from the passages found, with one LLM call."""
    _, pool = await search(question.text, settings.k, settings.effort, ctx)
    ctx.so_far(lambda: Answer(None, ctx.evidence(pool)))
    if settings.long_answer:
        context = await ctx.narrative(pool, LONG_ANSWER, question.text, settings.evidence_share)
        long = await ctx.generate(LONG_ANSWER, context=context, question=question.text)
        return Answer(long_text(long.paragraphs), ctx.evidence(pool))
    prompt = unless_known(answer_prompt(ctx, pool), settings.abstain)
    context = await ctx.narrative(pool, prompt, question.text, settings.evidence_share)
    reply = await ctx.generate(prompt, context=context, path="", question=question.text)
    return Answer(final_text(reply.answer), ctx.evidence(pool))


async def search(question: str, k: int, effort: system.Effort, ctx: Context) -> tuple[Pool, Pool]:
    """Search once for a question. Returns (the search results, the passages that the LLM reads: at most `k`).

    Unless `effort` is `paper`, the passages are ranked by their evidence graph, as in `n2n`.
    """
    if effort == "paper":
        pool = await ctx.retrieve(question, k)
        return pool, pool
    found = await ctx.retrieve(question, max(k, _RANKED))
    ranked = await ctx.call(rerank_pools, (found, question), RerankConfig(k, k, rank="bridge_rank", expand=True))
    return found, await passages_to_read(ranked, found, question, effort, ctx)


SYSTEM = system.System(
    "rag",
    answer,
    Settings,
    (ANSWER, LONG_ANSWER),
    summary="baseline: one search, whose results are used unchanged, and one LLM call",
    paper="a baseline of N2N-GQA",
)
