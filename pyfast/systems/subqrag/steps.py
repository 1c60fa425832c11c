"""Answer a sub-question from the graph, or from documents (SubQRAG's paper, section 2.3).

If the answer must come from documents, the LLM also extracts triples from them, which are added to the graph.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from pyfast.engine import Context, Prompt
from pyfast.errors import AnswerError
from pyfast.knowledge import Session, Statement
from pyfast.knowledge.support import supported_statements
from pyfast.retrieval import Pool
from pyfast.systems.effort import passages_to_read
from pyfast.systems.prompts import answers_in
from pyfast.systems.subqrag.fact_retrieval import RetrievedFact, retrieve_facts
from pyfast.systems.subqrag.learned import Learned, encode_statements
from pyfast.systems.subqrag.prompts import EXTRACT_TRIPLES, FROM_DOCUMENTS, FROM_FACTS, JUDGE_FACTS
from pyfast.systems.subqrag.settings import Settings
from pyfast.utils.token_budget import share

T = TypeVar("T")
_NUMBER = 5  # characters in a fact's number in a list


@dataclass(slots=True)
class Step:
    """One self-contained sub-question, and its result."""

    question: str
    answers: list[str] = field(default_factory=list)
    used: list[RetrievedFact] = field(default_factory=list)
    """The facts from which the answers come, with only the triples used"""
    read: list[int] = field(default_factory=list)
    """The ids of the segments that the LLM cited, if the answers come from documents"""
    facts: list[int] = field(default_factory=list)
    """The ids of the segments that state the retrieved facts"""
    documents: list[int] = field(default_factory=list)
    """The ids of the segments that a search retrieved"""
    learned: list[Statement] = field(default_factory=list)
    source: str = "nothing"
    """Where the answers come from: `graph`, `documents` or `nothing`"""
    degraded: list[str] = field(default_factory=list)
    """An error message for each malformed reply of the LLM"""


async def resolve(text: str, ctx: Context, settings: Settings, session: Session, learned: Learned) -> Step:
    """Answer a sub-question from facts of the graph. If the facts do not suffice, answer from documents."""
    step = Step(text)
    facts = await ctx.call(
        retrieve_facts, (text, learned, session.allowed), session.store, settings.k, settings.named
    )
    step.facts = list(dict.fromkeys(segment for fact in facts for segment in fact.segments(session.store)))
    if facts:
        await _from_facts(step, facts, ctx, JUDGE_FACTS if settings.sufficient else FROM_FACTS)
    if not step.answers:
        await _from_documents(step, ctx, settings)
    return step


async def _from_facts(step: Step, facts: Sequence[RetrievedFact], ctx: Context, prompt: Prompt[Any]) -> None:
    """Ask the LLM to find answers to a step's sub-question in the facts. If it finds no usable answer, the
    step stays without answers."""
    lines = share([fact.line for fact in facts], ctx.text_budget_to_repeat(prompt) - _NUMBER * len(facts))
    numbered = "\n".join(f"{number}. {line}" for number, line in enumerate(lines, start=1))
    try:
        reply = await ctx.generate(ctx.repeating(prompt, numbered), facts=numbered, question=step.question)
    except AnswerError as error:
        ctx.fell_back(prompt, error)
        step.degraded.append(str(error))
        return
    step.answers = answers_in(reply.answers) if getattr(reply, "sufficient", True) else []
    if step.answers:
        step.source = "graph"
        used = [facts[i - 1] for i in dict.fromkeys(reply.used) if 1 <= i <= len(facts)]
        step.used = [part for fact in used if (part := fact.with_answers(step.answers))]


async def _from_documents(step: Step, ctx: Context, settings: Settings) -> None:
    pool = await ctx.retrieve(step.question, settings.documents)
    if not len(pool):
        return
    pool = await passages_to_read(pool, pool, step.question, settings.effort, ctx)
    step.documents = _segments(pool, ctx).tolist()
    context = await ctx.narrative(pool, FROM_DOCUMENTS)
    try:
        reply = await ctx.generate(FROM_DOCUMENTS, context=context, question=step.question)
    except AnswerError as error:
        ctx.fell_back(FROM_DOCUMENTS, error)
        step.degraded.append(str(error))
    else:
        step.answers = answers_in(reply.answers)
        cited = [number - 1 for number in dict.fromkeys(reply.used) if 1 <= number <= len(pool)]
        step.read = _segments(pool, ctx)[cited].tolist() if step.answers else []
    step.source = "documents" if step.answers else "nothing"
    if settings.update:
        await _extract(step, pool, ctx)


async def _extract(step: Step, pool: Pool, ctx: Context) -> None:
    """Let the LLM extract triples from the retrieved documents in one call, and keep those that a document
    supports."""
    context = await ctx.narrative(pool, EXTRACT_TRIPLES)
    try:
        fields = await ctx.generate(EXTRACT_TRIPLES, context=context, question=step.question)
    except AnswerError as error:
        ctx.fell_back(EXTRACT_TRIPLES, error)
        step.degraded.append(str(error))
        return
    segments = _segments(pool, ctx).tolist()
    texts = [[pair] for pair in zip(segments, map(ctx.index.text, pool.passages.tolist()), strict=True)]
    step.learned = supported_statements(fields.triples, *texts).statements


def _segments(pool: Pool, ctx: Context) -> npt.NDArray[np.uint64]:
    """Return the segment ids of the pool's passages, in pool order."""
    ids: npt.NDArray[np.uint64] = ctx.index.corpus.ids[ctx.index.passages[pool.passages]]
    return ids


async def learn(step: Step, ctx: Context, session: Session, learned: Learned) -> None:
    """Add a step's new triples to the learned triples. If the step's answers come from documents, the triples
    that contain an answer are also added to the graph memory."""
    store = session.store
    fresh = [one for one in step.learned if not session.knows(one.head, one.relation, one.tail)]
    vectors = await asyncio.gather(*(ctx.call(encode_statements, one, store) for one in fresh))
    pairs = zip(fresh, vectors, strict=True)
    added = [statement for statement, vector in pairs if learned.add(statement, vector)]
    if step.source == "documents":
        facts = [RetrievedFact.of_statement(statement) for statement in step.learned]
        step.used = [fact for fact in facts if fact.with_answers(step.answers, or_some=False)]
    step.learned = added
