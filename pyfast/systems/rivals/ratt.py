"""RATT: a tree of thoughts with retrieval. In each layer, the LLM writes several thoughts, corrects each by what a
search finds, and makes one of them. The next layer continues from it."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from pyfast.engine import Answer, Context, Question
from pyfast.knowledge import Session
from pyfast.systems import system
from pyfast.systems.combinations import Inert
from pyfast.systems.mtqa.column import Column
from pyfast.systems.mtqa.nodes import summarise, think
from pyfast.systems.mtqa.prompts import KEYWORDS, SUMMARY_ALONE, THOUGHT_ALONE
from pyfast.systems.mtqa.settings import Thinking, Units
from pyfast.systems.prompts import final_text, long_text
from pyfast.systems.rivals.units import CORRECT, corrected, result
from pyfast.systems.together import together


class Settings(Thinking):
    """The parameters of the paper, with the knowledge units of MTQA."""

    inert: ClassVar[tuple[Inert, ...]] = (*Units.inert, Inert(("correction",), "retrieval", (False,)))

    nodes: int = Field(
        default=3,
        ge=1,
        le=20,
        description="Number of thoughts in a layer (m).",
        json_schema_extra={"paper": "3 in the authors' code; m in equation 12 of MTQA"},
    )
    layers: int = Field(
        default=4,
        ge=1,
        le=20,
        description="Number of layers (n). Each ends with one thought that is made of all others.",
        json_schema_extra={"paper": "n in equation 12 of MTQA, whose matrix has 3 x 4 nodes"},
    )
    correction: Literal["node", "paragraph"] = Field(
        default="node",
        description="What one search and one correction are for. `node`: a whole thought. `paragraph`: each"
        " paragraph of it, one after the other.",
        json_schema_extra={"paper": "node: equation 12 of MTQA; paragraph: the authors' code"},
    )


async def answer(question: Question, ctx: Context, settings: Settings, session: Session) -> Answer:
    """Answer a question from the thought of the last layer."""
    columns: list[Column] = []
    draft: list[str] = []
    short = ""
    ctx.so_far(lambda: result(None, columns, ctx, settings))
    alone = settings.model_copy(update={"retrieval": False})

    async def branch(seed: int) -> list[Column]:
        """Write a thought from that of the layer before, and correct it."""
        written = Column(seen=[0])
        steps = [written]
        thought = await think(question, draft, [], written, seed, ctx, alone)
        written.thoughts = [thought]
        if settings.retrieval:
            parts = [[part] for part in thought] if settings.correction == "paragraph" else [thought]
            revised: list[str] = []
            for part in parts or [[]]:
                column = Column(seen=[0])
                step = await corrected(question, revised, part, column, ctx, settings, session)
                column.thoughts = [step]
                steps.append(column)
                revised = [*revised, *step]
        return steps

    for layer in range(settings.layers):
        branches = await together(branch(layer * settings.nodes + node) for node in range(settings.nodes))
        columns += [column for steps in branches for column in steps]
        # The nodes become one
        thoughts = [
            [part for column in steps[settings.retrieval :] for part in column.thoughts[0]] for steps in branches
        ]
        whole = Column(thoughts=thoughts, seen=[0] * settings.nodes)
        columns.append(whole)
        await summarise(question, draft, whole, ctx, alone)
        draft, short = whole.summary, whole.answer or short
    return result(long_text(draft) if settings.long_answer else final_text(short), columns, ctx, settings)


SYSTEM = system.System(
    "ratt",
    answer,
    Settings,
    (THOUGHT_ALONE, KEYWORDS, CORRECT, SUMMARY_ALONE),
    opens=system.opens,
    summary="a tree of thoughts whose nodes are corrected by knowledge units, and joined in each layer",
    paper="RATT: A Thought Structure for Coherent and Correct LLM Reasoning",
)
