"""RATT: a tree of thoughts with retrieval. In each layer, the LLM writes several thoughts, corrects each with
search results, and merges them into one, from which the next layer continues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from pyfast.engine import Answer, Context, Question
from pyfast.knowledge import Session
from pyfast.systems import system
from pyfast.systems.combinations import Inert
from pyfast.systems.mtqa.column import Column
from pyfast.systems.mtqa.nodes import retrieve, summarise, think
from pyfast.systems.mtqa.prompts import KEYWORDS, SUMMARY_ALONE, THOUGHT_ALONE
from pyfast.systems.mtqa.settings import Thinking, Units
from pyfast.systems.prompts import final_text, long_text
from pyfast.systems.rivals.units import CORRECT, corrected, result
from pyfast.systems.together import together


class Settings(Thinking):
    """The parameters from the paper, with the knowledge units of MTQA."""

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
        description="Number of layers (n). Each ends with one thought that merges the layer's others.",
        json_schema_extra={"paper": "n in equation 12 of MTQA, whose matrix has 3 x 4 nodes"},
    )
    correction: Literal["node", "paragraph"] = Field(
        default="node",
        description="What the LLM corrects at a time, after a search for it. `node`: a whole thought."
        " `paragraph`: each paragraph of a thought, one after another.",
        json_schema_extra={"paper": "node: equation 12 of MTQA; paragraph: the authors' code"},
    )


async def answer(question: Question, ctx: Context, settings: Settings, session: Session) -> Answer:
    """Answer a question from the thought of the last layer."""
    columns: list[Column] = []
    draft: list[str] = []
    short = ""
    ctx.so_far(lambda: result(None, columns, ctx, settings))
    alone = settings.model_copy(update={"retrieval": False})
    for layer in range(settings.layers):
        # Nodes that all continue from the previous layer's thought
        written = [Column(seen=[0]) for _ in range(settings.nodes)]
        columns += written
        seeds = enumerate(written, start=layer * settings.nodes)
        thoughts = await together(think(question, draft, [], column, seed, ctx, alone) for seed, column in seeds)
        for column, thought in zip(written, thoughts, strict=True):
            column.thoughts = [thought]
        # Retrieve for each thought, and correct it
        if settings.retrieval:
            thoughts = await revised(question, thoughts, columns, ctx, settings, session)
        # Merge the nodes into one
        whole = Column(thoughts=thoughts, seen=[0] * settings.nodes)
        columns.append(whole)
        await summarise(question, draft, whole, ctx, alone)
        draft, short = whole.summary, whole.answer or short
    return result(long_text(draft) if settings.long_answer else final_text(short), columns, ctx, settings)


async def revised(
    question: Question,
    thoughts: Sequence[list[str]],
    columns: list[Column],
    ctx: Context,
    settings: Settings,
    session: Session,
) -> list[list[str]]:
    """Correct a layer's thoughts with the results of a search for each of them. The steps are added to `columns`.

    All searches run at the same time, and then all corrections, so that a question's budget always runs out at the
    same call.
    """
    by_paragraph = settings.correction == "paragraph"
    parts = [[[one] for one in thought] if by_paragraph and thought else [thought] for thought in thoughts]
    done: list[list[str]] = [[] for _ in thoughts]
    for number in range(max(map(len, parts))):
        pairs = zip(parts, done, strict=True)
        steps = [(each[number], before, Column(seen=[0])) for each, before in pairs if number < len(each)]
        columns += [column for _, _, column in steps]
        found = await together(
            retrieve(question, [*before, *part], column, ctx, settings, session) for part, before, column in steps
        )
        for (_, _, column), units in zip(steps, found, strict=True):
            column.units = units
        written = await together(
            corrected(question, before, part, column, ctx, settings) for part, before, column in steps
        )
        for (_, before, column), step in zip(steps, written, strict=True):
            column.thoughts = [step]
            before += step
    return done


SYSTEM = system.System(
    "ratt",
    answer,
    Settings,
    (THOUGHT_ALONE, KEYWORDS, CORRECT, SUMMARY_ALONE),
    opens=system.opens,
    summary="in each layer, the LLM writes several thoughts, corrects them with knowledge units, and merges them",
    paper="RATT: A Thought Structure for Coherent and Correct LLM Reasoning",
)
