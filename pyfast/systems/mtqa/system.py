"""The system MTQA."""

from __future__ import annotations

from pyfast.engine import Answer, Context, Question
from pyfast.knowledge import Session
from pyfast.systems import system
from pyfast.systems.combinations import Preset
from pyfast.systems.mtqa.column import Column, evidence, traced
from pyfast.systems.mtqa.nodes import fill, retrieve, summarise
from pyfast.systems.mtqa.prompts import KEYWORDS, SUMMARY, SUMMARY_ALONE, THOUGHT, THOUGHT_ALONE
from pyfast.systems.mtqa.settings import Settings
from pyfast.systems.prompts import final_text, long_text


async def answer(question: Question, ctx: Context, settings: Settings, session: Session) -> Answer:
    """Answer a question (algorithm 1 of MTQA).

    A column's prompts contain the previous column's summary, and a thought's prompt also contains a part of the
    thought above.
    """
    weights = settings.matrix()
    columns: list[Column] = []
    orders: list[list[str]] = []
    draft: list[str] = []

    def result(text: str | None = None) -> Answer:
        return Answer(
            text,
            evidence(columns, ctx),
            {"columns": [traced(column, settings.triples, ctx.index) for column in columns]},
        )

    ctx.so_far(result)
    for number in range(settings.columns):
        column = Column(orders=orders, earlier_units=settings.earlier_units)
        column.thoughts, column.seen = [[] for _ in range(settings.rows)], [0] * settings.rows
        columns.append(column)
        column.units = await retrieve(question, draft, column, ctx, settings, session)  # equation 6
        passed = [0.0, *(weights[row][number] for row in range(settings.rows - 1))]
        await fill(column, passed, number, question, draft, ctx, settings)
        every = [paragraph for thought in column.thoughts for paragraph in thought]
        column.correcting = await retrieve(question, every, column, ctx, settings, session)  # equation 10
        await summarise(question, draft, column, ctx, settings)
        draft = column.summary
    if settings.long_answer:
        return result(long_text(draft))
    return result(final_text(next((column.answer for column in reversed(columns) if column.answer), "")))


PRESETS = {
    "paper": Preset({"abstain": False}, 'table 3, "MTQA"'),
    "no-rag": Preset({"abstain": False, "retrieval": False}, 'table 3, "-RAG"'),
    "no-origin": Preset({"abstain": False, "source_text": False}, 'table 3, "-origin"'),
    "no-kg": Preset({"abstain": False, "triples": False}, 'table 3, "-KG"'),
    "no-comm": Preset({"abstain": False, "communication": False}, 'table 3, "-comm"'),
    "long": Preset({"long_answer": True}, "table 2: answers of several paragraphs"),
}

SYSTEM = system.System(
    "mtqa",
    answer,
    Settings,
    (KEYWORDS, THOUGHT, SUMMARY, THOUGHT_ALONE, SUMMARY_ALONE),
    opens=system.opens,
    summary="a matrix of thoughts over knowledge units; each thought passes a part of its text down its column",
    paper="MTQA: Matrix of Thought for Enhanced Reasoning in Complex Question Answering",
    presets=PRESETS,
)
