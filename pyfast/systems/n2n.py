"""N2N-GQA: the LLM plans hops (searches). An evidence graph ranks the passages of each hop, and a final one
ranks the passages for the answer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from pyfast.engine import Answer, Context, Question
from pyfast.errors import AnswerError
from pyfast.retrieval import (
    Centrality,
    Pool,
    Rank,
    RerankConfig,
    bridge_select,
    pool_ids,
    rerank_lists,
    rerank_pools,
    traced,
)
from pyfast.systems import system
from pyfast.systems.combinations import Inert, Preset
from pyfast.systems.effort import UNREAD, passages_to_read
from pyfast.systems.prompts import (
    ANSWER,
    EXTRACT,
    PLAN,
    answer_prompt,
    answers_in,
    final_text,
    plan_prompt,
    unless_known,
)

ANYTHING = "name or value"
_UNREAD_WITHOUT_GRAPHS = 0.05
"""How much evidence `effort=auto` may leave out of a list not ranked by an evidence graph"""
_PLACE = re.compile(r"\{entity([12])\}")


class Settings(system.Reading, system.Abstaining):
    """The parameters from N2N-GQA's paper. Some settings switch off parts of the method, for the paper's
    ablations."""

    inert: ClassVar[tuple[Inert, ...]] = (
        Inert(("ranking", "expand", "alpha", "centrality", "beta", "hop_min", "final_min"), "graph", (False,)),
        # They apply to the hops before the last one.
        Inert(("beta", "hop_min", "hop_max"), "decompose", (False,)),
        Inert(("alpha", "centrality"), "ranking", ("bridge_rank",)),
        Inert(("expand",), "ranking", ("graph_rank",)),  # `graph_rank` would rank the added passages last.
        Inert(("centrality",), "alpha", (1.0,)),
    )

    decompose: bool = Field(
        default=True,
        description="Let the LLM plan one to three hops (searches that build on each other). Off: there is a"
        " single hop, whose query is the question.",
        json_schema_extra={"paper": "Structured Query Planning"},
    )
    graph: bool = Field(
        default=True,
        description="Rank passages by an evidence graph, which connects those that share terms: after each hop"
        " except the last, and for the answer. Off: keep the order of the search, up to `hop_max` or `final_max`"
        " passages and rows.",
        json_schema_extra={"paper": "Evidence Graphs as Dynamic Knowledge Structures"},
    )
    ranking: Rank = Field(
        default="bridge_rank",
        description="How an evidence graph ranks its nodes (passages and rows). `graph_rank`: by the paper's"
        " method. `bridge_rank`: by pyfast's own, which finds more gold evidence.",
        json_schema_extra={"paper": "equation 1"},
    )
    expand: bool = Field(
        default=True,
        description="Extend each evidence graph with passages of the whole corpus that share terms with its best"
        " passages. In the final search, one more query contains the names that the hops found. Off with"
        " `ranking=graph_rank`, which would rank the added passages last.",
    )
    alpha: float = Field(
        default=0.85,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="The weight of the structural score in `graph_rank` is 1 - alpha. 1: no structural score"
        ' ("w/o GraphRank").',
        json_schema_extra={"paper": "equation 1; Hyperparameter Settings"},
    )
    centrality: Centrality = Field(
        default="degree",
        description="The structural score in `graph_rank`: how central a node is in the graph. `degree`, the"
        " weighted degree, is the paper's. The others take more time, because they need the graph's edges.",
        json_schema_extra={"paper": "equation 1"},
    )
    beta: float = Field(
        default=0.2,
        ge=0,
        allow_inf_nan=False,
        description="With several hops: a bonus for the best table row, and for the best text passage unless it"
        " contains a cell of this row. Scores are between 0 and 1. The paper gives no value.",
        json_schema_extra={"paper": "algorithm 1"},
    )
    hop_k: system.PassageCount = Field(
        default=20,
        ge=1,
        description="Number of passages and rows retrieved per hop.",
        json_schema_extra={"paper": "Hyperparameter Settings"},
    )
    hop_min: int = Field(
        default=5,
        ge=1,
        le=10_000,
        description="Minimum number of passages and rows kept from a hop. Up to `hop_max`, those with at least"
        " the mean score are kept too.",
        json_schema_extra={"paper": "Hyperparameter Settings"},
    )
    hop_max: int = Field(
        default=10,
        ge=1,
        le=10_000,
        description="Maximum number of passages and rows kept from a hop.",
        json_schema_extra={"paper": "Hyperparameter Settings"},
    )
    final_k: system.PassageCount = Field(
        default=100,
        ge=1,
        description="Number of passages and rows kept from the final search and all hops together.",
        json_schema_extra={"paper": "Hyperparameter Settings"},
    )
    final_unique: int = Field(
        default=50,
        ge=1,
        le=10_000,
        description="Maximum number of passages and rows from which those for the final answer are chosen.",
        json_schema_extra={"paper": "Hyperparameter Settings"},
    )
    final_min: int = Field(
        default=12,
        ge=1,
        le=10_000,
        description="Minimum number of passages and rows for the final answer. Only with `effort=paper`.",
        json_schema_extra={"paper": "Hyperparameter Settings"},
    )
    final_max: int = Field(
        default=25,
        ge=1,
        le=10_000,
        description="Maximum number of passages and rows for the final answer.",
        json_schema_extra={"paper": "Hyperparameter Settings"},
    )

    @model_validator(mode="before")
    @classmethod
    def _of_the_rank(cls, given: dict[str, Any]) -> dict[str, Any]:
        return {"expand": False, **given} if given.get("ranking") == "graph_rank" else given

    @model_validator(mode="after")
    def _no_minimum(self) -> Self:
        if self.effort != "paper" and "final_min" in self.model_fields_set:
            raise ValueError(f"final_min has no effect with effort={self.effort}: use effort=paper")
        return self


PRESETS = {
    "vanilla-rag": Preset({"decompose": False, "graph": False, "abstain": False}, 'table 2, "Vanilla RAG"'),
    "decomposition": Preset(
        {"decompose": True, "graph": False, "abstain": False}, 'table 2, "RAG with Query Decomposition"'
    ),
    "no-graphrank": Preset(
        {"decompose": True, "graph": True, "ranking": "graph_rank", "alpha": 1.0, "abstain": False},
        'table 2, "N2N-GQA w/o GraphRank"',
    ),
    "paper": Preset(
        {"decompose": True, "graph": True, "ranking": "graph_rank", "alpha": 0.85, "abstain": False},
        'table 2, "N2N-GQA w/ GraphRank": the whole pipeline',
    ),
}
"""The rows of the paper's table 2: the whole pipeline and its ablations. All rows use the default numbers of
passages and nodes"""


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan: the queries of its hops, in which `{entity1}` and `{entity2}` stand for the entities that
    earlier hops found.
    """

    queries: tuple[str, ...]
    alternatives: tuple[str, ...] = ()
    entity_type: str = ANYTHING
    degraded: str | None = None
    """Which part of the LLM's plan was unusable, and why."""


async def answer(question: Question, ctx: Context, settings: Settings) -> Answer:
    """Answer a question: plan hops, search and rank at each hop, and answer from the final graph."""
    plan = await make_plan(question.text, ctx, settings)
    if plan.degraded is not None:
        ctx.fell_back(PLAN, plan.degraded)
    evidence: list[Pool] = []
    entities: list[str] = []
    path: list[dict[str, Any]] = []
    trace: dict[str, Any] = {"class": len(plan.queries), "hops": path}
    if plan.degraded is not None:
        trace["plan_degraded"] = plan.degraded
    ctx.so_far(lambda: Answer(None, ctx.evidence(evidence[-1]) if evidence else None, trace))

    # Iterative evidence gathering and entity extraction
    for hop, template in enumerate(plan.queries):
        query = fill(template, entities)
        wordings = (query, *plan.alternatives) if hop == 0 else (query,)
        pool = await ctx.retrieve_all(wordings, settings.hop_k)
        evidence.append(pool)
        path.append({"query": query})
        if hop == 0 and plan.alternatives:
            path[-1]["alternatives"] = plan.alternatives
        if hop + 1 == len(plan.queries):
            path[-1] |= traced(pool)
            break  # The last hop's passages are the evidence for the answer.
        path[-1]["retrieved"] = pool_ids(pool)
        kept = await reranked(pool, query, ctx, settings, settings.hop_min, settings.hop_max)
        entity_type = plan.entity_type if hop == 0 else ANYTHING
        path[-1] |= {"type": entity_type, **traced(kept)}
        if not len(kept):
            path[-1]["stopped"] = "no passage found"
            break
        try:
            context = await ctx.narrative(kept, EXTRACT, query, settings.evidence_share)
            extracted = await ctx.generate(EXTRACT, context=context, entity_type=entity_type, question=query)
        except AnswerError as error:
            ctx.fell_back(EXTRACT, error)
            path[-1]["stopped"] = str(error)
            break
        found = answers_in([extracted.entity])
        if not found:
            path[-1]["stopped"] = "no entity found"
            break
        entities += found
        path[-1]["entity"] = entities[-1]

    # Final context curation and answer synthesis
    asks = [question.text]
    if settings.graph and settings.expand and settings.ranking == "bridge_rank" and entities:
        # Passages name what the question only describes.
        asks.append(" ".join([question.text, *entities]))
    candidates = await ctx.retrieve_all(asks, settings.final_k, evidence)
    if settings.graph and len(plan.queries) > 1:
        selected = await ctx.call(bridge_select, candidates, settings.beta)
        trace["linked"] = selected.linked
        candidates = selected
    candidates = candidates.head(settings.final_unique)
    trace["candidates"] = pool_ids(candidates)
    fewest = settings.final_min if settings.effort == "paper" else settings.final_max
    ranked = await reranked(candidates, question.text, ctx, settings, fewest, settings.final_max, True)
    trace["final"] = traced(ranked)
    asked = "\n".join([question.text, *(hop["query"] for hop in path)])
    unread = UNREAD if settings.graph else _UNREAD_WITHOUT_GRAPHS
    final = await passages_to_read(ranked, candidates, asked, settings.effort, ctx, unread)
    evidence.append(final)
    if settings.effort != "paper":
        trace["read"] = pool_ids(final)
    prompt = unless_known(answer_prompt(ctx, final), settings.abstain)
    context = await ctx.narrative(final, prompt, asked, settings.evidence_share)
    reply = await ctx.generate(prompt, context=context, path=reasoning_path(path), question=question.text)
    return Answer(final_text(reply.answer), ctx.evidence(final), trace)


async def make_plan(question: str, ctx: Context, settings: Settings) -> Plan:
    """Let the LLM plan the hops (search steps) of a question ("Structured Query Planning" in N2N-GQA's paper).

    If a hop is unusable, the plan ends before this hop. If no hop, or only the first of several, is usable,
    the plan is a single search, with the question itself as the query.
    """
    if not settings.decompose:
        return Plan((question,))
    try:
        fields = await ctx.generate(ctx.repeating(plan_prompt(question), question), question=question)
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
    """Replace `{entity1}` and `{entity2}` in a hop's query with the entities that earlier hops found."""
    known = {str(number): entity for number, entity in enumerate(entities, start=1)}
    return _PLACE.sub(lambda place: known.get(place[1], place[0]), template)


async def reranked(
    pool: Pool, query: str, ctx: Context, settings: Settings, min_nodes: int, max_nodes: int, edges: bool = False
) -> Pool:
    """Rank a pool by its evidence graph, and prune it. With `graph=off`, keep the first `max_nodes` passages
    of the pool. If the index has rerankers, they rank the pool first."""
    if not settings.graph:
        return (await ctx.call(rerank_lists, (pool, query)) if ctx.index.rerankers else pool).head(max_nodes)
    how = RerankConfig(
        min(min_nodes, max_nodes),
        max_nodes,
        settings.alpha,
        settings.ranking,
        settings.expand,
        settings.centrality,
        edges=edges,
    )
    return await ctx.call(rerank_pools, (pool, query), how)


def reasoning_path(path: list[dict[str, Any]]) -> str:
    """Write the hops for the final prompt, with the entities that they found. The result is empty if there
    was only one hop."""
    if len(path) < 2:
        return ""
    lines = [
        f"Found before: {step['query']} -> {step['entity']}" if "entity" in step else f"Last step: {step['query']}"
        for step in path
    ]
    return "".join(f"{line}\n" for line in lines)


SYSTEM = system.System(
    "n2n",
    answer,
    Settings,
    (PLAN, EXTRACT, ANSWER),
    summary="the LLM plans searches (hops), evidence graphs rank the passages, and the LLM answers from the best",
    paper="N2N-GQA: Noise-to-Narrative for Graph-Based Table-Text Question Answering Using LLMs",
    presets=PRESETS,
)
