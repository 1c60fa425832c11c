"""MTQA: algorithm 1."""

from __future__ import annotations

from pyfast.engine import Answer, Context, Question
from pyfast.knowledge import Session
from pyfast.systems import system
from pyfast.systems.mtqa.column import Column, communicated, evidence, traced
from pyfast.systems.mtqa.nodes import retrieve, summarise, think
from pyfast.systems.mtqa.prompts import KEYWORDS, SUMMARY, THOUGHT
from pyfast.systems.mtqa.settings import Settings
from pyfast.systems.prompts import final_text


async def answer(question: Question, ctx: Context, settings: Settings, session: Session) -> Answer:
    """Algorithm 1: each column from the summary of the one before, each node from the one above it."""
    weights = settings.matrix()
    columns: list[Column] = []
    draft: list[str] = []

    def found(text: str | None = None) -> Answer:
        return Answer(text, evidence(columns, ctx), {"columns": [traced(column) for column in columns]})

    ctx.so_far(found)
    for number in range(settings.columns):
        column = Column()
        columns.append(column)
        column.units = await retrieve(question, draft, column, ctx, settings, session)  # equation 6
        for row in range(settings.rows):
            seen = communicated(column.thoughts[-1], weights[row - 1][number]) if row else []
            seed = number * settings.rows + row
            column.seen.append(len(seen))
            column.thoughts.append(await think(question, draft, seen, column, seed, ctx, settings))
        every = [paragraph for thought in column.thoughts for paragraph in thought]
        column.correcting = await retrieve(question, every, column, ctx, settings, session)  # equation 10
        await summarise(question, draft, column, ctx, settings)
        draft = column.summary
    last = columns[-1]
    text = final_text(last.answer)
    if text is not None and settings.long_answer:
        text = "\n\n".join(last.summary)
    return found(text)


SYSTEM = system.System(
    "mtqa",
    answer,
    Settings,
    (KEYWORDS, THOUGHT, SUMMARY),
    opens=system.opens,
    summary="a matrix of thought over knowledge units, whose columns pass parts of their cells on",
    paper="MTQA: Matrix of Thought for Enhanced Reasoning in Complex Question Answering",
)
