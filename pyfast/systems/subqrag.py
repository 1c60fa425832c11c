"""SubQRAG: sub-questions one after the other, each answered from triples, or from documents that then give new
ones; the triples used are the memory from which the question is answered.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import Field

from pyfast.engine import Answer, Context, Question
from pyfast.errors import AnswerError
from pyfast.knowledge import Learned, Session, Statement, open_session
from pyfast.knowledge.reading import READ_TRIPLES, statements_in
from pyfast.knowledge.recall import Recalled, recall
from pyfast.knowledge.search import encode
from pyfast.knowledge.session import wording_of
from pyfast.retrieval import Evidence, Index
from pyfast.retrieval.embeddings import DEFAULT
from pyfast.systems import subqrag_prompts as prompts
from pyfast.systems import system
from pyfast.systems.prompts import final_text

T = TypeVar("T")
_PLACE = re.compile(r"#(\d+)")


class Settings(system.Settings):
    """The paper's parameters, and its ablations as switches."""

    decompose: bool = True
    """Off: one sub-question, the question itself."""
    rewrite: bool = True
    """Off: sub-questions are asked as they stand, with `#1` in them."""
    update: bool = True
    """Learn triples from the documents that the graph had to be helped out with."""
    shared_updates: bool = False
    """What a question learns others see at once, as in the paper: answers then depend on what runs beside them."""
    k: int = Field(default=5, ge=1, le=100)
    """Facts for a sub-question."""
    documents: int = Field(default=5, ge=1, le=100)
    """Units for a sub-question that the graph does not answer."""
    named: int = Field(default=4, ge=0, le=100)
    """Of these, how many may be there because the sub-question names what they are about; 0 is the paper's."""
    branches: int = Field(default=256, ge=1, le=10_000)
    """How many questions a sub-question may become that refers to several answers."""
    embedder: str = DEFAULT
    """A model of sentence-transformers: its name or folder."""


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


async def answer(question: Question, ctx: Context, settings: Settings, session: Session) -> Answer:
    """The paper's four stages; the first, indexing, is the store's."""
    learned = session.shared if settings.shared_updates else Learned()
    chain, degraded = await sub_questions(question.text, ctx, settings)
    steps: list[list[Step]] = []
    for text in chain:
        asked = await on_its_own(text, chain, steps, ctx, settings)
        found = await together(resolve(one, ctx, settings, session, learned) for one in asked)
        steps.append(found)
        for step in found:  # now, and in this order: what a question knows does not depend on what ran first
            await learn(step, ctx, session, learned)
    flat = [step for found in steps for step in found]
    memory = dict.fromkeys(line for step in flat for line in memory_of(step))
    if not memory:
        return Answer(None, trace=trace(steps, degraded))
    room = ctx.room(prompts.FROM_MEMORY)
    reply = await ctx.generate(prompts.FROM_MEMORY, memory=within(memory, room), question=question.text)
    return Answer(final_text(reply.answer), evidence(flat, session), trace(steps, degraded))


async def sub_questions(question: str, ctx: Context, settings: Settings) -> tuple[list[str], str | None]:
    """Section 2.2.1: (the ordered chain, what was wrong with the model's)."""
    if not settings.decompose:
        return [question], None
    try:
        fields = await ctx.generate(prompts.SUB_QUESTIONS, question=question)
    except AnswerError as error:
        return [question], str(error)
    chain = [text.strip() for text in fields.questions if text.strip()]
    return (chain, None) if chain else ([question], "sub_questions: none was given")


async def on_its_own(
    text: str, chain: Sequence[str], steps: Sequence[Sequence[Step]], ctx: Context, settings: Settings
) -> list[str]:
    """Section 2.2.2, equation 2: the sub-question with what was found before.

    Where it refers to several answers it becomes several questions, one for each: the five nearest facts of one
    could not hold the answers for all.
    """
    if not steps or not settings.rewrite:
        return [text]
    answers = [list(dict.fromkeys(name for step in found for name in step.answers)) for found in steps]
    named = sorted({int(place) - 1 for place in _PLACE.findall(text)} & set(range(len(steps))))
    chosen = [answers[i] for i in named]
    if not all(chosen):
        return [text]
    combinations = islice(product(*chosen), settings.branches)
    before = [", ".join(names) for names in answers]
    return await together(
        _rewritten(text, chain, {**dict(enumerate(before)), **dict(zip(named, combination, strict=True))}, ctx)
        for combination in combinations
    )


async def _rewritten(text: str, chain: Sequence[str], found: dict[int, str], ctx: Context) -> str:
    lines = [f"#{i + 1}: {chain[i]} -> {name}" for i, name in found.items() if name]
    if not lines:
        return text
    try:
        fields = await ctx.generate(prompts.REWRITE, found="\n".join(lines), question=text)
    except AnswerError:
        fields = prompts.RewrittenFields(question="")
    filled = _PLACE.sub(lambda place: found.get(int(place[1]) - 1) or place[0], text)
    return fields.question.strip() or filled


async def resolve(text: str, ctx: Context, settings: Settings, session: Session, learned: Learned) -> Step:
    """Section 2.3: answers and used triples from the graph (equation 3), else from documents."""
    step = Step(text)
    facts = await ctx.call(recall, (text, learned), session.store, settings.k, settings.named)
    if facts:
        room = ctx.room(prompts.FROM_FACTS) // len(facts)
        lines = [f"{number}. {fact.line(room)}" for number, fact in enumerate(facts, start=1)]
        reply = await ctx.generate(prompts.FROM_FACTS, facts="\n".join(lines), question=text)
        step.answers = tidied(reply.answers)
        if step.answers:
            step.source = "graph"
            used = [facts[i - 1] for i in dict.fromkeys(reply.used) if 1 <= i <= len(facts)]
            step.used = [triple for fact in used for triple in fact.triples_with(step.answers)]
            return step
    pool = await ctx.retrieve(text, settings.documents)
    if not len(pool):
        return step
    context = await ctx.narrative(pool, prompts.FROM_DOCUMENTS)
    from_documents = await ctx.generate(prompts.FROM_DOCUMENTS, context=context, question=text)
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


def memory_of(step: Step) -> list[str]:
    """What a step puts into the graph memory; answers that no triple says stand as they were found."""
    if step.used:
        return [fact.line() for fact in step.used]
    return [f"{step.question} -> {'; '.join(step.answers)}"] if step.answers else []


def within(lines: Iterable[str], room: int) -> str:
    """As many lines as fit, at least one."""
    kept: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if room < 0 and kept:
            break
        kept.append(line)
    return "\n".join(kept)


def evidence(steps: Sequence[Step], session: Session) -> Evidence:
    """The segments that say the triples used, in the order of the path."""
    ids = dict.fromkeys(
        segment for step in steps for fact in step.used for segment in fact.segments(session.store)
    )
    places = session.segments(list(ids))
    return Evidence(places, np.ones(len(places), np.float32))


def trace(steps: Sequence[Sequence[Step]], degraded: str | None) -> dict[str, Any]:
    """The path: each sub-question as it was asked, with its answers and triples; and what was learned."""
    path = [
        [
            {
                "question": step.question,
                "source": step.source,
                "answers": step.answers,
                "triples": [list(triple) for fact in step.used for triple in fact.triples],
            }
            for step in found
        ]
        for found in steps
    ]
    learned = [
        {"head": said.head, "relation": said.relation, "tail": said.tail, "segment": f"{said.segment:016x}"}
        for found in steps
        for step in found
        for said in step.learned
    ]
    told = {"path": path, **({"learned": learned} if learned else {})}
    return told if degraded is None else {**told, "chain_degraded": degraded}


def tidied(answers: Iterable[str]) -> list[str]:
    """Answers without blanks around them, each once."""
    return list(dict.fromkeys(text.strip() for text in answers if text.strip()))


async def together(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """What they return, in their order. The first error ends the others."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()


def opens(index: Index, settings: Settings, run: Path | None) -> Session:
    """The store of the index, as it was when the run began."""
    return open_session(index, settings.embedder, run)


SYSTEM = system.System(
    "subqrag",
    answer,
    Settings,
    (
        prompts.SUB_QUESTIONS,
        prompts.REWRITE,
        prompts.FROM_FACTS,
        prompts.FROM_DOCUMENTS,
        READ_TRIPLES,
        prompts.FROM_MEMORY,
    ),
    opens=opens,
)
