"""What a column is filled by: retrievals (equations 6 and 10), thoughts (equation 8) and its summary (11)."""

from __future__ import annotations

from collections.abc import Sequence

from pyfast.engine import Context, Question, Sampling
from pyfast.errors import AnswerError
from pyfast.knowledge import Keywords, Session, Unit, knowledge_units
from pyfast.knowledge.records import shown
from pyfast.systems.mtqa.column import Column, paragraphs, under, within
from pyfast.systems.mtqa.prompts import KEYWORDS, SUMMARY, THOUGHT
from pyfast.systems.mtqa.settings import Settings
from pyfast.systems.prompts import tidied


async def retrieve(
    question: Question, thoughts: Sequence[str], column: Column, ctx: Context, settings: Settings, session: Session
) -> list[Unit]:
    """Step 2: keywords of the question and what was thought of it, then the units that they lead to."""
    if not settings.retrieval:
        return []
    said = "".join(f"\n{line}" for line in within(thoughts, ctx.room(KEYWORDS)))
    try:
        found = await ctx.generate(KEYWORDS, question=question.text, thoughts=said and f"\nThoughts so far:{said}")
        keywords = Keywords(tuple(tidied(found.detailed)), tuple(tidied(found.general)))
    except AnswerError as error:
        column.degraded.append(str(error))
        keywords = Keywords(())
    if not keywords.detailed and not keywords.general:
        keywords = Keywords((question.text,), (question.text,))
    return await ctx.call(
        knowledge_units, keywords, session, settings.entities, settings.relations, settings.units
    )


async def think(
    question: Question,
    draft: Sequence[str],
    seen: Sequence[str],
    column: Column,
    seed: int,
    ctx: Context,
    settings: Settings,
) -> list[str]:
    """Equation 8: one node. One that cannot be used is empty, and shows the next one nothing."""
    room = ctx.room(THOUGHT)
    try:
        reply = await ctx.generate(
            THOUGHT,
            Sampling(settings.temperature, seed),
            context=narrated(column.units, room // 2, ctx, settings),
            question=question.text,
            draft=under("Draft:", within(draft, room // 4)),
            other=under("Another line of thought ended:", within(seen[::-1], room // 4)[::-1]),
        )
    except AnswerError as error:
        column.degraded.append(str(error))
        return []
    return paragraphs(reply.paragraphs)


async def summarise(
    question: Question, draft: Sequence[str], column: Column, ctx: Context, settings: Settings
) -> None:
    """Equation 11: what the column comes to, held against the knowledge."""
    room = ctx.room(SUMMARY)
    share = room // (4 * max(len(column.thoughts), 1))
    thoughts = [f"({i})\n" + "\n".join(within(thought, share)) for i, thought in enumerate(column.thoughts, 1)]
    reply = await ctx.generate(
        SUMMARY,
        context=narrated(column.correcting, room // 2, ctx, settings),
        question=question.text,
        draft=under("Draft:", within(draft, room // 4)),
        thoughts="\n".join(thoughts),
    )
    column.summary, column.answer = paragraphs(reply.paragraphs), reply.answer


def narrated(units: Sequence[Unit], room: int, ctx: Context, settings: Settings) -> str:
    """Knowledge units as the LLM reads them: numbered source texts, each above the triples that it says."""
    told = []
    for number, unit in enumerate(units, start=1):
        text = " " + ctx.index.text(unit.unit) if settings.source_text else ""
        triples = (
            "".join(f"\n- {' | '.join(map(shown, triple))}" for triple in unit.triples) if settings.triples else ""
        )
        told.append(f"[{number}]{text}{triples}")
    return "\n".join(within(told, room)) or "(nothing was found)"
