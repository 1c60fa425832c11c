"""N2N-GQA: a plan of hops; an evidence graph, ranked and pruned, at each hop and at the end; then the answer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Self

from pydantic import Field, model_validator

from pyfast.engine import Answer, Context, Question
from pyfast.errors import AnswerError
from pyfast.retrieval import Centrality, Curation, Pool, Rank, bridge_select, curate
from pyfast.systems import system
from pyfast.systems.prompts import ANSWER, EXTRACT, PLAN, final_text

ANYTHING = "name or value"
_PLACE = re.compile(r"\{entity([12])\}")


class Settings(system.Settings):
    """The paper's hyperparameters, and its ablations as switches."""

    decompose: bool = True
    """Plan hops; off: one hop, the question itself."""
    graph: bool = True
    """Evidence graphs; off: the retrieved list, cut off."""
    rank: Rank = "bridge_rank"
    """`bridge_rank` is pyfast's own; `graph_rank` is the paper's."""
    expand: bool = True
    """Join what a pool's best units lead to in the whole corpus. `graph_rank` could not lift it: off with that."""
    alpha: float = Field(default=0.85, ge=0, le=1, allow_inf_nan=False)
    """GraphRank's balance; 1 leaves structure out (the paper's "w/o GraphRank")."""
    centrality: Centrality = "degree"
    """GraphRank's structural score. The paper weighs nodes by `degree`; the others cost the graph's edges too."""
    beta: float = Field(default=0.2, ge=0, allow_inf_nan=False)
    """The selector's boost, on scores in [0, 1]. The paper does not give its value."""
    hop_k: int = Field(default=20, ge=1, le=10_000)
    hop_least: int = Field(default=5, ge=1, le=10_000)
    hop_most: int = Field(default=10, ge=1, le=10_000)
    final_k: int = Field(default=100, ge=1, le=10_000)
    final_unique: int = Field(default=50, ge=1, le=10_000)
    final_least: int = Field(default=12, ge=1, le=10_000)
    final_most: int = Field(default=25, ge=1, le=10_000)

    @model_validator(mode="before")
    @classmethod
    def _of_the_rank(cls, given: dict[str, Any]) -> dict[str, Any]:
        """What only one of the ranks has is off, or refused, with the other."""
        if given.get("rank") != "graph_rank":
            for name in ("alpha", "centrality"):
                if name in given:
                    raise ValueError(f"{name} wants rank=graph_rank")
            return given
        return {"expand": False, **given}

    @model_validator(mode="after")
    def _can_lift(self) -> Self:
        if self.rank == "graph_rank" and self.expand:
            raise ValueError("expand wants rank=bridge_rank")
        return self


@dataclass(frozen=True, slots=True)
class Plan:
    """Hops as query templates: `{entity1}`, `{entity2}` stand for what earlier hops found."""

    queries: tuple[str, ...]
    alternatives: tuple[str, ...] = ()
    entity_type: str = ANYTHING
    degraded: str | None = None
    """What of the LLM's plan could not be used, and why."""


async def answer(question: Question, ctx: Context, settings: Settings) -> Answer:
    """The paper's pipeline, section by section."""
    plan = await make_plan(question.text, ctx, settings)
    evidence: list[Pool] = []
    entities: list[str] = []
    path: list[dict[str, str]] = []

    # Iterative evidence gathering and entity extraction
    for hop, template in enumerate(plan.queries):
        query = fill(template, entities)
        wordings = (query, *plan.alternatives) if hop == 0 else (query,)
        pool = await ctx.retrieve_all(wordings, settings.hop_k)
        evidence.append(pool)
        path.append({"query": query})
        if hop + 1 == len(plan.queries):
            break  # what the last hop found is evidence for the answer
        kept = await curated(pool, query, ctx, settings, settings.hop_least, settings.hop_most)
        entity_type = plan.entity_type if hop == 0 else ANYTHING
        try:
            found = await ctx.generate(
                EXTRACT, context=await ctx.narrative(kept, EXTRACT), entity_type=entity_type, question=query
            )
        except AnswerError as error:
            path[-1]["stopped"] = str(error)
            break
        if not found.entity.strip():
            path[-1]["stopped"] = "no entity found"
            break
        entities.append(found.entity.strip())
        path[-1]["entity"] = entities[-1]

    # Final context curation and answer synthesis
    candidates = await ctx.retrieve_all((question.text,), settings.final_k, evidence)
    if settings.graph and len(plan.queries) > 1:
        candidates = await ctx.call(bridge_select, candidates, settings.beta)
    candidates = candidates.head(settings.final_unique)
    final = await curated(candidates, question.text, ctx, settings, settings.final_least, settings.final_most)
    reply = await ctx.generate(
        ANSWER, context=await ctx.narrative(final, ANSWER), path=reasoning_path(path), question=question.text
    )
    trace: dict[str, Any] = {"hops": path}
    if plan.degraded is not None:
        trace["plan_degraded"] = plan.degraded
    return Answer(final_text(reply.answer), ctx.evidence(final), trace)


async def make_plan(question: str, ctx: Context, settings: Settings) -> Plan:
    """Structured query planning. Of a broken plan the hops before the break stay, at least the question itself."""
    if not settings.decompose:
        return Plan((question,))
    try:
        fields = await ctx.generate(PLAN, question=question)
    except AnswerError as error:
        return Plan((question,), degraded=str(error))
    if not fields.query.strip():
        return Plan((question,), degraded="plan: the first query is empty")
    queries = [fields.query]
    degraded = None
    for hop, query in enumerate((fields.second_query, fields.third_query)[: fields.hops - 1], start=1):
        if not any(f"{{entity{earlier}}}" in query for earlier in range(1, hop + 1)):
            degraded = f"plan: query {hop + 1} uses no earlier entity"
            break
        queries.append(query)
    if len(queries) == 1 and degraded is not None:
        return Plan((question,), degraded=degraded)
    alternatives = tuple(wording for wording in fields.alternatives if wording.strip())
    return Plan(tuple(queries), alternatives, fields.entity_type.strip() or ANYTHING, degraded)


def fill(template: str, entities: list[str]) -> str:
    """The query of a hop, with what earlier hops found in place of `{entity1}`, `{entity2}`; in one pass."""
    found = {str(number): entity for number, entity in enumerate(entities, start=1)}
    return _PLACE.sub(lambda place: found.get(place[1], place[0]), template)


async def curated(pool: Pool, query: str, ctx: Context, settings: Settings, least: int, most: int) -> Pool:
    """Graph, GraphRank and pruning; without the graph, the head of the list."""
    if not settings.graph:
        return pool.head(most)
    how = Curation(min(least, most), most, settings.alpha, settings.rank, settings.expand, settings.centrality)
    return await ctx.call(curate, (pool, query), how)


def reasoning_path(path: list[dict[str, str]]) -> str:
    """The steps taken, for the final prompt; nothing for a single hop."""
    found = [f"{step['query']} -> {step['entity']}" for step in path if "entity" in step]
    return "".join(f"Found before: {line}\n" for line in found)


SYSTEM = system.System("n2n", answer, Settings, (PLAN, EXTRACT, ANSWER))
