"""RAT: retrieval-augmented thoughts. The LLM writes a chain of thoughts without knowledge. Then it corrects
them one by one, each with the results of a search for it and the corrected thoughts before it."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from pyfast.engine import Answer, Context, Question
from pyfast.knowledge import Session
from pyfast.systems import system
from pyfast.systems.combinations import Inert
from pyfast.systems.mtqa.column import Column
from pyfast.systems.mtqa.nodes import retrieve, think
from pyfast.systems.mtqa.prompts import KEYWORDS, THOUGHT_ALONE
from pyfast.systems.mtqa.settings import Thinking, Units
from pyfast.systems.prompts import long_text
from pyfast.systems.rivals.common import CONCLUDE
from pyfast.systems.rivals.units import CORRECT, concluded, corrected, result


class Settings(Thinking):
    """The parameters from the paper, with the knowledge units of MTQA."""

    inert: ClassVar[tuple[Inert, ...]] = (*Units.inert, Inert(("causal", "query"), "retrieval", (False,)))

    causal: bool = Field(
        default=True,
        description="Correct the thoughts one by one. Off: correct all of them at once, after one search.",
        json_schema_extra={"paper": "causal and non-causal reasoning in the ablation"},
    )
    query: Literal["thoughts", "question"] = Field(
        default="thoughts",
        description="The source of a search's keywords: the question with the thoughts so far, or the question"
        " alone.",
        json_schema_extra={"paper": "retrieval by the question in the ablation"},
    )


async def answer(question: Question, ctx: Context, settings: Settings, session: Session) -> Answer:
    """Answer a question from a chain of thoughts that is corrected step by step."""
    first = Column(seen=[0])
    columns = [first]
    ctx.so_far(lambda: result(None, columns, ctx, settings))
    # Zero-shot chain of thought
    alone = settings.model_copy(update={"retrieval": False})
    draft = await think(question, [], [], first, 0, ctx, alone)
    first.thoughts = [draft]
    # Each thought is corrected, and then precedes the next one
    revised = [] if settings.retrieval else draft
    chain = [[thought] for thought in draft] if settings.causal else [draft]
    for thought in (chain or [[]]) if settings.retrieval else ():
        column = Column(seen=[0])
        columns.append(column)
        about = [*revised, *thought] if settings.query == "thoughts" else []
        column.units = await retrieve(question, about, column, ctx, settings, session)
        step = await corrected(question, revised, thought, column, ctx, settings)
        column.thoughts = [step]
        revised = [*revised, *step]
    text = long_text(revised) if settings.long_answer else await concluded(question, revised, ctx, settings)
    return result(text, columns, ctx, settings)


SYSTEM = system.System(
    "rat",
    answer,
    Settings,
    (THOUGHT_ALONE, KEYWORDS, CORRECT, CONCLUDE),
    opens=system.opens,
    summary="a chain of thoughts, each corrected with the knowledge units that a search for it finds",
    paper="RAT: Retrieval Augmented Thoughts Elicit Context-Aware Reasoning in Long-Horizon Generation",
)
