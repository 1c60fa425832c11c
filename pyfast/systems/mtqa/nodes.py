"""The steps of a column of MTQA: retrieval (equations 6 and 10), thoughts (8) and summary (11)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, zip_longest

from pyfast.engine import Context, Question, Sampling
from pyfast.errors import AnswerError
from pyfast.knowledge import Session
from pyfast.knowledge.names import escape_name, tidy
from pyfast.systems.mtqa.column import NUMBER, Column, communicated, continuing, paragraphs, under
from pyfast.systems.mtqa.knowledge_units import Keywords, KnowledgeUnit, knowledge_units
from pyfast.systems.mtqa.prompts import KEYWORDS, SUMMARY, SUMMARY_ALONE, THOUGHT, THOUGHT_ALONE
from pyfast.systems.mtqa.settings import Thinking, Units
from pyfast.systems.prompts import tidied, unless_known
from pyfast.systems.together import together
from pyfast.utils.token_budget import fit


async def retrieve(
    question: Question, thoughts: Sequence[str], column: Column, ctx: Context, settings: Units, session: Session
) -> list[KnowledgeUnit]:
    """Retrieve knowledge units (step 2 of MTQA).

    The LLM reads the question and `thoughts` (paragraphs of earlier nodes) and writes keywords, with which a
    search finds the knowledge units. If the LLM's reply is unusable, the question itself is the query.
    """
    if not settings.retrieval:
        return []
    lines = "".join(f"\n{line}" for line in fit(thoughts, ctx.text_budget(KEYWORDS), first="cut"))
    try:
        so_far = lines and f"\nThoughts so far:{lines}"
        reply = await ctx.generate(KEYWORDS, question=question.text, thoughts=so_far)
        keywords = Keywords(tuple(tidied(reply.detailed)), tuple(tidied(reply.general)))
    except AnswerError as error:
        ctx.fell_back(KEYWORDS, error)
        column.degraded.append(str(error))
        keywords = Keywords(())
    if not keywords.detailed and not keywords.general:
        keywords = Keywords((question.text,), (question.text,))
    return await ctx.call(
        knowledge_units, keywords, session, settings.entities, settings.relations, settings.units
    )


async def fill(
    column: Column,
    passed: Sequence[float],
    number: int,
    question: Question,
    draft: Sequence[str],
    ctx: Context,
    settings: Thinking,
) -> None:
    """Fill the thought nodes of a column (equations 7 and 8 of MTQA).

    A node that sees a part of the node above waits for that node. Nodes that see nothing of the node above
    start together, in parallel.

    `passed` contains for each node how much it sees of the node above, from 0 (nothing) to 1 (all). `number`
    is the column's number, on which the nodes' random seeds depend. `draft` is the previous column's summary.
    """

    async def chain(rows: range) -> None:
        for row in rows:
            seen = communicated(column.thoughts[row - 1], passed[row]) if row else []
            column.seen[row] = len(seen)
            seed = number * len(passed) + row
            column.thoughts[row] = await think(question, draft, seen, column, seed, ctx, settings)

    starts = [row for row, weight in enumerate(passed) if not weight]
    await together(chain(range(*ends)) for ends in pairwise([*starts, len(passed)]))


async def think(
    question: Question,
    draft: Sequence[str],
    seen: Sequence[str],
    column: Column,
    seed: int,
    ctx: Context,
    settings: Thinking,
) -> list[str]:
    """Let the LLM write one thought node (equation 8 of MTQA).

    The LLM sees `draft`, the previous column's summary, and `seen`, the last paragraphs of the node above. If
    the reply is unusable, the node stays empty, and the node below sees nothing of it.
    """
    prompt = THOUGHT if settings.retrieval else THOUGHT_ALONE
    budget = ctx.text_budget(prompt)
    try:
        reply = await ctx.generate(
            unless_known(prompt, settings.abstain or settings.long_answer),  # so that it begins like the summary
            Sampling(settings.temperature, seed),
            **knowledge(column, column.units, budget // 2, ctx, settings),
            question=question.text,
            draft=under("Draft:", fit(draft, budget // 4, first="cut")),
            other=under("Another line of thought ended:", fit(seen[::-1], budget // 4, first="cut")[::-1]),
        )
    except AnswerError as error:
        ctx.fell_back(prompt, error)
        column.degraded.append(str(error))
        return []
    return paragraphs(reply.paragraphs)


async def summarise(
    question: Question, draft: Sequence[str], column: Column, ctx: Context, settings: Units
) -> None:
    """Let the LLM write a column's summary and check it with knowledge units (equation 11 of MTQA).

    If the LLM's reply is unusable, the column's last usable thought replaces the summary, and the column has
    no short answer. If no thought is usable, `draft` (the previous column's summary) replaces it.
    """
    prompt = SUMMARY if settings.retrieval else SUMMARY_ALONE
    budget = ctx.text_budget(prompt)
    share = budget // (4 * max(len(column.thoughts), 1))
    thoughts = [
        f"({i})\n" + "\n".join(fit(thought, share, first="cut")) for i, thought in enumerate(column.thoughts, 1)
    ]
    try:
        reply = await ctx.generate(
            unless_known(prompt, settings.abstain or settings.long_answer),
            **knowledge(column, column.correcting, budget // 2, ctx, settings),
            question=question.text,
            draft=under("Draft:", fit(draft, budget // 4, first="cut")),
            thoughts="\n".join(thoughts),
        )
    except AnswerError as error:
        ctx.fell_back(prompt, error)
        column.degraded.append(str(error))
        column.summary = next((thought for thought in reversed(column.thoughts) if thought), [*draft])
    else:
        column.summary, column.answer = paragraphs(reply.paragraphs), reply.answer


def knowledge(
    column: Column, units: Sequence[KnowledgeUnit], budget: int, ctx: Context, settings: Units
) -> dict[str, str]:
    """Make the prompt field `context` with as many knowledge units as fit into `budget` characters, and add
    them to `column.shown`. Without retrieval, the prompt has no such field."""
    if not settings.retrieval:
        return {}
    texts = fit(narrated(units, ctx, settings), budget - NUMBER * len(units), first="cut")
    column.shown.update(dict.fromkeys(units[: len(texts)]))
    own = sum(len(text) + NUMBER for text in texts)
    room = min(own, budget - own) if column.earlier_units else 0
    ordered = continuing(texts, column.orders, room)
    blocks = (f"[{number}] {text}" for number, text in enumerate(ordered, start=1))
    return {"context": "\n".join(blocks) or "(nothing was found)"}


def narrated(units: Sequence[KnowledgeUnit], ctx: Context, settings: Units) -> list[str]:
    """Write knowledge units as source texts, each followed by the unit's triples and entities with their
    descriptions, in an order that does not depend on the search. With `source_text=off`, the texts are left
    out; with `triples=off`, the triples and entities."""
    blocks = []
    for unit in units:
        text = ctx.index.text(unit.passage) if settings.source_text else ""
        lines = []
        if settings.triples:
            triples = (" | ".join(map(escape_name, triple)) for triple in unit.triples)
            lines += sorted(_line(*pair) for pair in zip_longest(triples, unit.descriptions, fillvalue=""))
            lines += sorted(
                _line(", ".join(filter(None, (escape_name(name), tidy(kind)))), description)
                for name, kind, description in unit.entities
            )
        blocks.append(f"{text}{''.join(lines)}")
    return blocks


def _line(subject: str, description: str) -> str:
    return f"\n- {subject}" + (f": {tidy(description)}" if description else "")
