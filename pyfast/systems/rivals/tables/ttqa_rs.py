"""TTQA-RS: the LLM summarises table rows and texts, and breaks the question down. It answers the first part
from rows and, with this answer, the whole question from texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import Field

from pyfast.corpus import Level
from pyfast.engine import Answer, Context, Prompt, Question
from pyfast.retrieval import Index, Pool, narrate, traced
from pyfast.systems import system
from pyfast.systems.prompts import answers_in, final_text, unless_known
from pyfast.systems.rivals.common import NOTHING, joined, usable
from pyfast.systems.rivals.tables.prompts import FROM_BOTH, FROM_ROWS, GIST, PARTS, PartsFields


class Settings(system.Abstaining):
    """The options from the paper, and how much a search finds and the LLM reads."""

    summary: bool = Field(
        default=True,
        description="Let the LLM first summarise the rows and texts, and read this summary when it answers.",
        json_schema_extra={"paper": "table-text summary; left out in the ablation"},
    )
    breakdown: bool = Field(
        default=True,
        description="Let the LLM break the question into a part for table rows and one for texts. Off: it"
        " answers the question from the results of the first search.",
        json_schema_extra={"paper": "break-down prompting, and chain of thought alone"},
    )
    search: system.PassageCount = Field(
        default=50,
        ge=1,
        description="Number of passages and table rows that a search finds. The LLM reads the best rows and the"
        " best texts among them.",
    )
    rows: int = Field(
        default=10,
        ge=0,
        le=10_000,
        description="Maximum number of table rows per search that the LLM reads.",
    )
    texts: int = Field(
        default=5,
        ge=0,
        le=10_000,
        description="Maximum number of texts per search that the LLM reads.",
    )


async def answer(question: Question, ctx: Context, settings: Settings) -> Answer:
    """Answer a question first from rows, and then from rows and texts."""
    steps = list[dict[str, Any]]()
    trace: dict[str, Any] = {"steps": steps}
    rows = texts = NOTHING
    ctx.so_far(lambda: Answer(None, ctx.evidence(joined(rows, texts)), trace))
    found = await ctx.retrieve(question.text, settings.search)
    rows, texts = await ctx.call(rows_and_texts, found, settings.rows, settings.texts)
    steps.append({"query": question.text, **traced(joined(rows, texts))})
    summary = ""
    if settings.summary:
        summary = trace["summary"] = await gist(question, joined(rows, texts), ctx)
    notes = f"Summary: {summary}\n" if summary else ""
    parts = await broken_down(question, ctx) if settings.breakdown else None
    if parts is not None:
        trace |= parts.model_dump()
        known = trace["table_answer"] = await from_rows(
            parts.table_question, rows if len(rows) else texts, notes, ctx
        )
        if parts.answer_type.strip():
            notes += f"The answer is of this kind: {parts.answer_type.strip()}\n"
        if known:
            notes += f"{parts.table_question} {known}\n"
            query = parts.text_question.replace("{answer}", known)
            query = query if known in query else f"{query} {known}"
            found = await ctx.retrieve(query, settings.search)
            more, about = await ctx.call(rows_and_texts, found, settings.rows, settings.texts)
            rows, texts = joined(rows, more), joined(about, texts)
            steps.append({"query": query, **traced(joined(more, about))})
    prompt = unless_known(FROM_BOTH, settings.abstain)
    context = await shown(joined(rows, texts), prompt, len(notes) + len(question.text), ctx)
    reply = await ctx.generate(prompt, context=context, notes=notes, question=question.text)
    return Answer(final_text(reply.answer), ctx.evidence(joined(rows, texts)), trace)


def rows_and_texts(index: Index, pools: Sequence[Pool], rows: int, texts: int) -> list[tuple[Pool, Pool]]:
    """Divide each pool into its best table rows and its best other passages."""
    divided = []
    for pool in pools:
        is_row = np.asarray(index.corpus.level)[index.passages[pool.passages]] == Level.TABLE_ROW
        of_kind = [Pool(pool.passages[kind], pool.scores[kind]) for kind in (is_row, ~is_row)]
        divided.append((of_kind[0].head(rows), of_kind[1].head(texts)))
    return divided


async def shown(pool: Pool, prompt: Prompt[Any], beside: int, ctx: Context) -> str:
    """Write as many passages as fit into a prompt with `beside` other characters, as numbered lines."""
    text = await ctx.call(narrate, pool, max(ctx.text_budget(prompt) - beside, 200))
    if (left_out := len(pool) - text.count("\n") - 1) > 0:
        ctx.ledger.left_out[prompt.name] += left_out
    return text


async def gist(question: Question, pool: Pool, ctx: Context) -> str:
    """Let the LLM summarise rows and texts. Without a usable reply, there is no summary."""
    context = await shown(pool, GIST, len(question.text), ctx)
    reply = await usable(ctx, GIST, context=context, question=question.text)
    return "" if reply is None else " ".join(reply.summary.split())


async def broken_down(question: Question, ctx: Context) -> PartsFields | None:
    """Let the LLM break the question down. Without a usable reply, it stays whole."""
    parts = await usable(ctx, PARTS, question=question.text)
    return parts if parts and parts.table_question.strip() and parts.text_question.strip() else None


async def from_rows(asked: str, rows: Pool, summary: str, ctx: Context) -> str:
    """Let the LLM answer the first part from rows. Without a usable reply, there is no answer."""
    context = await shown(rows, FROM_ROWS, len(summary) + len(asked), ctx)
    reply = await usable(ctx, FROM_ROWS, context=context, summary=summary, question=asked)
    return next(iter(answers_in([reply.answer] if reply else [])), "")


SYSTEM = system.System(
    "ttqa_rs",
    answer,
    Settings,
    (GIST, PARTS, FROM_ROWS, FROM_BOTH),
    summary="table rows answer the first part of a question, and texts the rest, with a summary of both",
    paper="TTQA-RS: A Break-Down Prompting Approach for Multi-hop Table-Text Question Answering with Reasoning and"
    " Summarization",
)
