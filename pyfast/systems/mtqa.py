"""MTQA: a matrix of thought. Nodes of a column see a part of each other; knowledge units correct each column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import Field, model_validator

from pyfast.engine import Answer, Context, Question, Sampling
from pyfast.errors import AnswerError
from pyfast.knowledge import Keywords, Session, Unit, knowledge_units, open_session
from pyfast.knowledge.records import shown
from pyfast.retrieval import Evidence, Index
from pyfast.retrieval.embeddings import DEFAULT
from pyfast.systems import system
from pyfast.systems.mtqa_prompts import KEYWORDS, SUMMARY, THOUGHT
from pyfast.systems.mtqa_weights import Weights, communication_weights
from pyfast.systems.prompts import final_text


class Settings(system.Settings):
    """The paper's parameters, and its ablations as switches. One row or one column is a chain of thought."""

    rows: int = Field(default=3, ge=1, le=20)
    """Nodes of a column (m)."""
    columns: int = Field(default=4, ge=1, le=20)
    """Columns (n), each ended by a summary."""
    weights: str = "vert&hor-0.1"
    """A scheme of `communication_weights`, or (rows - 1) lists of one number per column, in JSON."""
    retrieval: bool = True
    """Off: no knowledge at all (the paper's "-RAG")."""
    source_text: bool = True
    """Off: units are triples alone ("-origin")."""
    triples: bool = True
    """Off: units are source texts alone ("-KG")."""
    communication: bool = True
    """Off: all weights are 0, a tree of thought ("-comm")."""
    entities: int = Field(default=3, ge=1, le=100)
    """Entities for a detailed keyword."""
    relations: int = Field(default=3, ge=1, le=100)
    """Relation keys for a general keyword."""
    units: int = Field(default=10, ge=1, le=1000)
    """Knowledge units for a retrieval."""
    temperature: float = Field(default=0.7, ge=0, le=2, allow_inf_nan=False)
    """Of thoughts, each with a seed of its own; at 0 nodes that see nothing of each other are all the same."""
    long_answer: bool = False
    """The answer is the whole last summary, for open questions; off: the name, number or phrase asked for."""
    embedder: str = DEFAULT
    """A model of sentence-transformers: its name or folder."""

    @model_validator(mode="after")
    def _fit(self) -> Self:
        if not self.source_text and not self.triples:
            raise ValueError("units without source_text and triples are empty: give retrieval=off")
        if not self.retrieval and not (self.source_text and self.triples):
            raise ValueError("source_text and triples want retrieval=on")
        if not self.communication and "weights" in self.model_fields_set:
            raise ValueError("weights wants communication=on")
        self.matrix()  # refuses weights that do not fit
        return self

    def matrix(self) -> Weights:
        """Equation 9: what each node sees of the one above it."""
        return communication_weights(self.weights if self.communication else "const-0", self.rows, self.columns)


@dataclass(slots=True)
class Column:
    """One column of the matrix, as it comes to be."""

    units: list[Unit] = field(default_factory=list)
    """KU, before its nodes"""
    thoughts: list[list[str]] = field(default_factory=list)
    """The paragraphs of each node (Tn)"""
    seen: list[int] = field(default_factory=list)
    """How many paragraphs each node saw of the one above it"""
    correcting: list[Unit] = field(default_factory=list)
    """KU', before its summary"""
    summary: list[str] = field(default_factory=list)
    """Paragraphs (Sn)"""
    answer: str = ""
    degraded: list[str] = field(default_factory=list)
    """What the LLM did not give in the right form"""


async def answer(question: Question, ctx: Context, settings: Settings, session: Session) -> Answer:
    """Algorithm 1: each column from the summary of the one before, each node from the one above it."""
    weights = settings.matrix()
    columns: list[Column] = []
    draft: list[str] = []
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
    return Answer(text, evidence(columns, ctx), {"columns": [traced(column) for column in columns]})


async def retrieve(
    question: Question, thoughts: Sequence[str], column: Column, ctx: Context, settings: Settings, session: Session
) -> list[Unit]:
    """Step 2: keywords of the question and what was thought of it, then the units that they lead to."""
    if not settings.retrieval:
        return []
    said = "".join(f"\n{line}" for line in within(thoughts, ctx.room(KEYWORDS)))
    try:
        found = await ctx.generate(KEYWORDS, question=question.text, thoughts=said and f"\nThoughts so far:{said}")
        keywords = Keywords(tidied(found.detailed), tidied(found.general))
    except AnswerError as error:
        column.degraded.append(str(error))
        keywords = Keywords(())
    if not keywords.detailed and not keywords.general:
        keywords = Keywords((question.text,), (question.text,))
    return await ctx.call(
        knowledge_units, keywords, session, settings.entities, settings.relations, settings.units
    )


def communicated(thought: Sequence[str], weight: float) -> list[str]:
    """Equation 8's αTn: the last ⌈α · paragraphs⌉ of a node, where it says what it comes to."""
    count = ceil(round(weight * len(thought), 9))  # 0.3 * 10 is 3.0000000000000004 at times
    return list(thought[len(thought) - count :])


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


def within(texts: Iterable[str], room: int) -> list[str]:
    """As many texts, from the first on, as fit; the first of all may be cut."""
    kept: list[str] = []
    for text in texts:
        if len(text) + 1 > room and kept:
            break
        kept.append(text[:room])
        room -= len(text) + 1
    return kept


def under(heading: str, texts: Sequence[str]) -> str:
    """The texts under a heading; nothing where there are none."""
    return "\n".join(("", heading, *texts, "")) if texts else ""


def paragraphs(given: Iterable[str]) -> list[str]:
    """Paragraphs without blanks around them; one that holds empty lines is several."""
    return [part.strip() for text in given for part in text.split("\n\n") if part.strip()]


def tidied(words: Iterable[str]) -> tuple[str, ...]:
    """Keywords without blanks around them, each once."""
    return tuple(dict.fromkeys(word.strip() for word in words if word.strip()))


def evidence(columns: Sequence[Column], ctx: Context) -> Evidence:
    """The sources of all units, those of the last summary first."""
    best: dict[int, float] = {}
    for column in reversed(columns):
        for unit in (*column.correcting, *column.units):
            best[unit.unit] = max(unit.score, best.get(unit.unit, unit.score))
    return Evidence(ctx.index.units[list(best)], np.array(list(best.values()), np.float32))


def traced(column: Column) -> dict[str, Any]:
    """The column in JSON types."""
    units = [*column.units, *column.correcting]
    told = {
        "thoughts": column.thoughts,
        "seen": column.seen,
        "summary": column.summary,
        "triples": list(dict.fromkeys(triple for unit in units for triple in unit.triples)),
    }
    return {**told, "degraded": column.degraded} if column.degraded else told


def opens(index: Index, settings: Settings, run: Path | None) -> Session:
    """The store of the index, as it was when the run began."""
    return open_session(index, settings.embedder, run)


SYSTEM = system.System("mtqa", answer, Settings, (KEYWORDS, THOUGHT, SUMMARY), opens=opens)
