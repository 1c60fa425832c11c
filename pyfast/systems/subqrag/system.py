"""SubQRAG: its stages, one after the other."""

from __future__ import annotations

from pyfast.engine import Answer, Context, Question
from pyfast.knowledge import Learned, Session
from pyfast.knowledge.reading import READ_TRIPLES
from pyfast.systems import system
from pyfast.systems.prompts import final_text
from pyfast.systems.subqrag.chain import on_its_own, sub_questions
from pyfast.systems.subqrag.memory import evidence, memory_of, trace, within
from pyfast.systems.subqrag.prompts import FROM_DOCUMENTS, FROM_FACTS, FROM_MEMORY, REWRITE, SUB_QUESTIONS
from pyfast.systems.subqrag.settings import Settings
from pyfast.systems.subqrag.steps import Step, learn, resolve, together


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
    room = ctx.room(FROM_MEMORY)
    reply = await ctx.generate(FROM_MEMORY, memory="\n".join(within(memory, room)), question=question.text)
    return Answer(final_text(reply.answer), evidence(flat, session), trace(steps, degraded))


SYSTEM = system.System(
    "subqrag",
    answer,
    Settings,
    (SUB_QUESTIONS, REWRITE, FROM_FACTS, FROM_DOCUMENTS, READ_TRIPLES, FROM_MEMORY),
    opens=system.opens,
)
