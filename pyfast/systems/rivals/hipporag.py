"""HippoRAG 2: the triples that match a question supply the start nodes in a graph of phrases and passages.
Personalised PageRank on this graph ranks the passages, and the LLM answers from the best of them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, Field

from pyfast.engine import Answer, Context, Prompt, Question
from pyfast.knowledge import Session
from pyfast.knowledge.store import Knowledge
from pyfast.retrieval import Pool, traced
from pyfast.systems import system
from pyfast.systems.combinations import Inert
from pyfast.systems.prompts import ANSWER
from pyfast.systems.rivals.common import answer_from, usable
from pyfast.systems.rivals.linking import Fact, linked_facts, linked_phrases
from pyfast.systems.rivals.phrase_graph import Seed, Walk, ranked_passages
from pyfast.utils.token_budget import share


class UsefulFields(BaseModel):
    """The numbers of the facts that help to answer a question."""

    useful: list[int] = Field(max_length=100)


RECOGNISE = Prompt(
    name="recognise",
    system=(
        "You choose from a list of facts those that help to answer a question: facts about what the question"
        " names, and facts on the way from there to the answer. Leave out facts that only use similar words. A"
        " fact is written: head | relation | tail. Several heads or tails are separated by semicolons. Reply in"
        " JSON with the field useful: the numbers of the facts that help, at most 100, or an empty list."
    ),
    user="Facts:\n$facts\n\nQuestion: $question",
    answer=UsefulFields,
    max_tokens=400,
    role="extract",
)


class Settings(system.WithKnowledge):
    """The parameters from the paper, and the maximum size of the graph."""

    inert: ClassVar[tuple[Inert, ...]] = (
        Inert(("facts", "recognition"), "linking", ("phrases",)),
        Inert(("seeds", "passage_weight"), "passage_nodes", (False,)),
    )

    linking: Literal["triples", "phrases"] = Field(
        default="triples",
        description="What is compared with the question to find the seeds, the phrases (entities) where PageRank"
        " starts. `triples`: facts, whose phrases become seeds. `phrases`: the phrases themselves.",
        json_schema_extra={"paper": "query to triple; query to node in the ablation"},
    )
    facts: int = Field(
        default=5,
        ge=1,
        le=100,
        description="Number of facts retrieved per question.",
        json_schema_extra={"paper": "the top 5 triples"},
    )
    recognition: bool = Field(
        default=True,
        description="Let the LLM choose the facts that help to answer. Off: keep all retrieved facts.",
        json_schema_extra={"paper": "recognition memory; no filter in the ablation"},
    )
    phrases: int = Field(
        default=5,
        ge=1,
        le=1000,
        description="Maximum number of phrases that become seeds.",
        json_schema_extra={"paper": "at most 5 phrase nodes"},
    )
    passage_nodes: bool = Field(
        default=True,
        description="Include passages as nodes of the graph. Off: the graph has only phrases, and the rank of a"
        " passage is the sum of the ranks of its phrases.",
        json_schema_extra={"paper": "dense-sparse integration; no passage nodes in the ablation"},
    )
    seeds: system.PassageCount = Field(
        default=100,
        ge=1,
        description="Number of a search's best passages that also become seeds.",
        json_schema_extra={"paper": "all passages"},
    )
    passage_weight: float = Field(
        default=0.05,
        ge=0,
        le=100,
        description="Weight of the best passage as a seed; others weigh less. A phrase's weight is the mean"
        " cosine of its facts to the question or, with `linking=phrases`, the phrase's own cosine.",
        json_schema_extra={"paper": "the weight factor 0.05 of passage nodes"},
    )
    synonyms: float = Field(
        default=0.8,
        ge=0,
        le=1,
        description="An edge joins a seed and another phrase if the cosine similarity of their names' vectors"
        " is at least this. 1: no such edges.",
        json_schema_extra={"paper": "the synonym threshold 0.8"},
    )
    damping: float = Field(
        default=0.5,
        ge=0,
        lt=1,
        description="Damping factor of Personalised PageRank: the probability that the walk follows an edge.",
        json_schema_extra={"paper": "the damping factor 0.5"},
    )
    nodes: int = Field(
        default=2000,
        ge=1,
        le=1_000_000,
        description="Maximum number of nodes that PageRank uses around the seeds. Seeds and their synonyms are"
        " always kept.",
    )
    k: system.PassageCount = Field(
        default=5,
        ge=1,
        description="Number of passages and table rows that the LLM reads.",
        json_schema_extra={"paper": "the top 5 passages"},
    )


async def answer(question: Question, ctx: Context, settings: Settings, session: Session) -> Answer:
    """Answer a question from the passages that the graph ranks best or, if no triple matches, from the search
    results.
    """
    trace: dict[str, Any] = {}
    most = max(settings.k, settings.seeds) if settings.passage_nodes else settings.k
    pool = await ctx.retrieve(question.text, most)
    read = pool.head(settings.k)
    ctx.so_far(lambda: Answer(None, ctx.evidence(read), trace))

    if settings.linking == "phrases":
        phrases = await ctx.call(linked_phrases, (question.text, session), session.store, settings.phrases)
    else:
        found = await ctx.call(linked_facts, (question.text, session), session.store, settings.facts)
        kept = await recognised(question, found, ctx) if found and settings.recognition else found
        trace["facts"] = [
            {"triples": list(map(list, one.triples)), "cosine": cosine, "useful": (cosine, one) in kept}
            for cosine, one in found
        ]
        phrases = seeds(kept, session.store, settings.phrases)
    trace["phrases"] = [[session.store.entities[phrase], weight] for phrase, weight in phrases]

    ranked = read.head(0)
    if phrases:
        walk = Walk(settings.passage_nodes, settings.synonyms, settings.damping, settings.nodes, settings.k)
        weights = np.maximum(pool.head(settings.seeds).scores, 0)
        weights *= settings.passage_weight / max(weights.max(initial=0), 1e-9)
        weighted = Pool(pool.head(settings.seeds).passages, weights)
        ranked = await ctx.call(ranked_passages, (session, phrases, weighted), session.store, walk)
    read = ranked if len(ranked) else read
    trace["ranked_by"] = "graph" if len(ranked) else "search"
    trace["steps"] = [{"query": question.text, **traced(read)}]

    text = await answer_from(read, question, ctx, settings.abstain)
    return Answer(text, ctx.evidence(read), trace)


async def recognised(question: Question, found: list[Fact], ctx: Context) -> list[Fact]:
    """Let the LLM choose the facts that help (recognition memory). If its reply is unusable, all are kept."""
    room = ctx.text_budget(RECOGNISE) - len(question.text) - 5 * len(found)  # A number has 5 characters.
    lines = share([fact.line for _, fact in found], room)
    numbered = "\n".join(f"{number}. {line}" for number, line in enumerate(lines, start=1))
    reply = await usable(ctx, RECOGNISE, facts=numbered, question=question.text)
    return [fact for number, fact in enumerate(found, start=1) if reply is None or number in reply.useful]


def seeds(facts: Sequence[Fact], store: Knowledge, most: int) -> list[Seed]:
    """Return up to `most` of the phrases in the facts, in descending order of weight. A phrase's weight is the
    mean cosine of its triples."""
    cosines: dict[int, list[float]] = {}
    for cosine, fact in facts:
        for triple in fact.places:
            for phrase in dict.fromkeys((int(store.head[triple]), int(store.tail[triple]))):
                cosines.setdefault(phrase, []).append(cosine)
    return sorted(((phrase, fmean(each)) for phrase, each in cosines.items()), key=lambda seed: -seed[1])[:most]


SYSTEM = system.System(
    "hipporag",
    answer,
    Settings,
    (RECOGNISE, ANSWER),
    opens=system.opens,
    summary="PageRank in a graph of phrases and passages, started from matching facts, finds the passages to read",
    paper="From RAG to Memory: Non-Parametric Continual Learning for Large Language Models",
)
