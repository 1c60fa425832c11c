"""N2N-GQA: a plan of hops; an evidence graph, ranked and pruned, at each hop and at the end; then the answer."""

from __future__ import annotations

from asyncio import gather
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from pyfast.engine import Answer, Context, Question
from pyfast.engine.context import Curation, Rank
from pyfast.errors import CallError
from pyfast.retrieval import Pool
from pyfast.systems.prompts import ANSWER, EXTRACT, PLAN, final_text


class Settings(BaseModel):
    """The paper's hyperparameters, and its ablations as switches."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    decompose: bool = True
    """Plan hops; off: one hop, the question itself."""
    graph: bool = True
    """Evidence graphs; off: the retrieved list, cut off (with `decompose` on: RAG with query decomposition)."""
    alpha: float = Field(default=0.85, ge=0, le=1)
    """GraphRank's balance; 1 leaves structure out (the paper's "w/o GraphRank")."""
    rank: Rank = "graph_rank"
    """`graph_rank` is the paper's; `bridge_rank` is pyfast's own."""
    beta: float = Field(default=0.2, ge=0)
    """The selector's boost, on scores in [0, 1]. The paper does not give its value."""
    hop_k: int = Field(default=20, ge=1)
    hop_least: int = Field(default=5, ge=1)
    hop_most: int = Field(default=10, ge=1)
    final_k: int = Field(default=100, ge=1)
    final_unique: int = Field(default=50, ge=1)
    final_least: int = Field(default=12, ge=1)
    final_most: int = Field(default=25, ge=1)


@dataclass(frozen=True, slots=True)
class Plan:
    """Hops as query templates: `{entity1}`, `{entity2}` stand for what earlier hops found."""

    queries: tuple[str, ...]
    alternatives: tuple[str, ...] = ()
    entity_type: str = "name or value"
    degraded: str | None = None
    """Why the LLM's plan could not be used."""


async def answer(question: Question, ctx: Context, settings: Settings) -> Answer:
    """The paper's pipeline, section by section."""
    plan = await make_plan(question.text, ctx, settings)
    evidence: list[Pool] = []
    entities: list[str] = []
    path: list[dict[str, Any]] = []

    # Iterative evidence gathering and entity extraction
    for hop, template in enumerate(plan.queries):
        query = fill(template, entities)
        wordings = (query, *plan.alternatives) if hop == 0 else (query,)
        pool = merge(await gather(*(ctx.retrieve(w, settings.hop_k) for w in wordings)), settings.hop_k)
        kept = await curate(pool, ctx, settings, settings.hop_least, settings.hop_most)
        evidence.append(pool)
        step: dict[str, Any] = {"query": query}
        path.append(step)
        if hop + 1 < len(plan.queries):
            entity = await extract(query, plan.entity_type if hop == 0 else "name or value", kept, ctx)
            if entity is None:
                step["stopped"] = "no entity found: the later hops have nothing to ask about"
                break
            entities.append(entity)
            step["entity"] = entity

    # Final context curation and answer synthesis
    evidence.append(await ctx.retrieve(question.text, settings.final_k))
    candidates = merge(evidence, settings.final_k)
    if settings.graph and len(plan.queries) > 1:
        boosted = await ctx.bridge_select(candidates, settings.beta)
        order = np.argsort(-boosted, kind="stable")
        candidates = Pool(candidates.units[order], boosted[order])
    final = await curate(
        candidates.head(settings.final_unique), ctx, settings, settings.final_least, settings.final_most
    )
    reply = await ctx.generate(
        ANSWER,
        context=ctx.narrative(final, ANSWER.max_tokens),
        path=reasoning_path(path),
        question=question.text,
    )
    trace = {"hops": path} if plan.degraded is None else {"hops": path, "plan_degraded": plan.degraded}
    return Answer(final_text(reply.answer), list(final), trace)


async def make_plan(question: str, ctx: Context, settings: Settings) -> Plan:
    """Structured query planning. A plan that cannot be used becomes one hop, the question itself."""
    if not settings.decompose:
        return Plan((question,))
    try:
        fields = await ctx.generate(PLAN, question=question)
    except CallError as error:
        return Plan((question,), degraded=str(error))
    queries = (fields.query, fields.second_query, fields.third_query)[: fields.hops]
    if not fields.query.strip():
        return Plan((question,), degraded="plan: the first query is empty")
    for hop, query in enumerate(queries[1:], start=1):
        if f"{{entity{hop}}}" not in query:
            return Plan((question,), degraded=f"plan: query {hop + 1} does not use {{entity{hop}}}")
    alternatives = tuple(a for a in fields.alternatives if a.strip())
    return Plan(queries, alternatives, fields.entity_type.strip() or "name or value")


def fill(template: str, entities: list[str]) -> str:
    """The query of a hop, with what earlier hops found in place of `{entity1}`, `{entity2}`."""
    for number, entity in enumerate(entities, start=1):
        template = template.replace(f"{{entity{number}}}", entity)
    return template


async def extract(query: str, entity_type: str, kept: Pool, ctx: Context) -> str | None:
    """Intermediate entity extraction from a hop's context; None where the LLM finds none."""
    context = ctx.narrative(kept, EXTRACT.max_tokens)
    try:
        reply = await ctx.generate(EXTRACT, context=context, entity_type=entity_type, question=query)
    except CallError:
        return None
    return reply.entity.strip() or None


async def curate(pool: Pool, ctx: Context, settings: Settings, least: int, most: int) -> Pool:
    """Graph, GraphRank and pruning; without the graph, the head of the list."""
    if not settings.graph:
        return pool.head(most)
    least = min(least, most)
    return await ctx.curate(pool, Curation(least, most, settings.alpha, settings.rank))


def merge(pools: Sequence[Pool], k: int) -> Pool:
    """The `k` best units of several pools, each once.

    Scores of different queries do not compare, so they are min-max normalised per pool (a pool of one score: 1);
    a unit keeps its best. Ties: the earlier pool, then its order.
    """
    best: dict[int, float] = {}
    for pool in pools:
        if not len(pool):
            continue
        low, high = float(pool.scores.min()), float(pool.scores.max())
        span = high - low
        for unit, score in pool:
            normal = (score - low) / span if span > 0 else 1.0
            if normal > best.get(unit, -1.0):
                best[unit] = normal
    ranked = sorted(best.items(), key=lambda item: -item[1])[:k]
    return Pool(
        np.array([unit for unit, _ in ranked], dtype=np.int32),
        np.array([score for _, score in ranked], dtype=np.float32),
    )


def reasoning_path(path: list[dict[str, Any]]) -> str:
    """The steps taken, for the final prompt; nothing for a single hop."""
    found = [f"{step['query']} -> {step['entity']}" for step in path if "entity" in step]
    return "".join(f"Found before: {line}\n" for line in found)
