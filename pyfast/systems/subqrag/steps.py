"""Section 2.3: a sub-question answered from the graph, or from documents, of which the graph then learns."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pyfast.engine import Context
from pyfast.errors import AnswerError
from pyfast.knowledge import Learned, Session, Statement
from pyfast.knowledge.reading import READ_TRIPLES, statements_in
from pyfast.knowledge.recall import Recalled, recall
from pyfast.knowledge.search import encode
from pyfast.knowledge.session import wording_of
from pyfast.systems.prompts import tidied
from pyfast.systems.subqrag.prompts import FROM_DOCUMENTS, FROM_FACTS
from pyfast.systems.subqrag.settings import Settings

T = TypeVar("T")


@dataclass(slots=True)
class Step:
    """One sub-question on its own, and what came of it."""

    question: str
    answers: list[str] = field(default_factory=list)
    used: list[Recalled] = field(default_factory=list)
    """Triples (equation 5's T_used)"""
    learned: list[Statement] = field(default_factory=list)
    source: str = "nothing"
    """Where the answers are from: graph, documents or nothing"""


async def resolve(text: str, ctx: Context, settings: Settings, session: Session, learned: Learned) -> Step:
    """Section 2.3: answers and used triples from the graph (equation 3), else from documents."""
    step = Step(text)
    facts = await ctx.call(recall, (text, learned), session.store, settings.k, settings.named)
    if facts:
        room = ctx.room(FROM_FACTS) // len(facts)
        lines = [f"{number}. {fact.line(room)}" for number, fact in enumerate(facts, start=1)]
        reply = await ctx.generate(FROM_FACTS, facts="\n".join(lines), question=text)
        step.answers = tidied(reply.answers)
        if step.answers:
            step.source = "graph"
            used = [facts[i - 1] for i in dict.fromkeys(reply.used) if 1 <= i <= len(facts)]
            step.used = [triple for fact in used for triple in fact.triples_with(step.answers)]
            return step
    pool = await ctx.retrieve(text, settings.documents)
    if not len(pool):
        return step
    context = await ctx.narrative(pool, FROM_DOCUMENTS)
    from_documents = await ctx.generate(FROM_DOCUMENTS, context=context, question=text)
    step.answers = tidied(from_documents.answers)
    step.source = "documents" if step.answers else "nothing"
    if settings.update:
        read = await together(_read(unit, text, ctx) for unit in pool.units.tolist())
        step.learned = [statement for statements in read for statement in statements]
    return step


async def _read(unit: int, question: str, ctx: Context) -> list[Statement]:
    """Equation 4, one passage at a time, so that none can speak for another: its triples that can be believed."""
    passage = ctx.index.text(unit)[: ctx.room(READ_TRIPLES)]
    try:
        fields = await ctx.generate(READ_TRIPLES, passage=passage, question=question)
    except AnswerError:
        return []
    segment = int(ctx.index.corpus.ids[ctx.index.units[unit]])
    return list(statements_in(fields.triples, [(segment, passage)]))


async def learn(step: Step, ctx: Context, session: Session, learned: Learned) -> None:
    """Add what a step has learned, where it is new, and take what of it names an answer for the memory."""
    fresh = [said for said in step.learned if not session.store.knows(said.head, said.relation, said.tail)]
    vectors = await asyncio.gather(*(ctx.call(encode, wording_of(said), session.store) for said in fresh))
    pairs = zip(fresh, vectors, strict=True)
    added = [statement for statement, vector in pairs if learned.add(statement, vector)]
    if step.source == "documents":
        told = [Recalled.of_statement(said) for said in step.learned]
        step.used = [triple for fact in told for triple in fact.triples_with(step.answers, or_all=False)]
    step.learned = added


async def together(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """What they return, in their order. The first error ends the others."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
