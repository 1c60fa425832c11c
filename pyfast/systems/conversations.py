"""Conversations for systems that answer single questions. The LLM makes later turns self-contained.

There are two methods, rewriting and resolution (see `FollowUps`). Both are baselines in graph_convqa's paper
(table 2). The paper's metrics need the entities in the evidence, so the trace also contains these entities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, Field

from pyfast.engine import Answer, Ask, Context, Past, Prompt, Question
from pyfast.errors import AnswerError
from pyfast.retrieval import ScoredSegments
from pyfast.systems.graph_convqa.entities import linearise, names_in
from pyfast.utils.options import FollowUps
from pyfast.utils.token_budget import fit_last

_MOST_TERMS = 10


class RewrittenTurnFields(BaseModel):
    """The turn as a self-contained question."""

    question: str = Field(max_length=400)


class ResolvedTurnFields(BaseModel):
    """Terms that the turn leaves out, from earlier turns."""

    terms: list[Annotated[str, Field(max_length=60)]] = Field(max_length=_MOST_TERMS)


_TURNS = "${turns}The last question: $question"
REWRITE_TURN = Prompt(
    name="rewrite_turn",
    system=(
        "You make the last question of a conversation stand on its own. Reply in JSON. question: the last "
        "question, in at most 400 characters, with names in place of words such as he, it or there, and with what "
        "it takes over from earlier turns. Who reads it alone must know what is asked. Do not answer it."
    ),
    user=_TURNS,
    answer=RewrittenTurnFields,
    max_tokens=200,
    role="plan",
)
RESOLVE_TURN = Prompt(
    name="resolve_turn",
    system=(
        "You find what the last question of a conversation leaves out. Reply in JSON. terms: the names and words "
        "of earlier turns that the last question is about and does not say, as they stand there; at most "
        f"{_MOST_TERMS}, each of at most 60 characters; none if it leaves nothing out."
    ),
    user=_TURNS,
    answer=ResolvedTurnFields,
    max_tokens=200,
    role="plan",
)
PROMPTS: dict[FollowUps, tuple[Prompt[Any], ...]] = {
    "off": (),
    "rewrite": (REWRITE_TURN,),
    "resolve": (RESOLVE_TURN,),
}


async def answer_turn(question: Question, ctx: Context, *, ask: Ask, follow_ups: FollowUps) -> Answer:
    """Answer one turn of a conversation.

    Unless `follow_ups` is "off", a later turn is first rewritten as a self-contained question, which the trace
    stores as `asked`. The trace also contains `entities`, the entities in the evidence, unless the budget does
    not allow another step.
    """
    asked = question
    if follow_ups != "off" and ctx.past:
        asked = replace(question, text=await on_its_own(question.text, ctx, follow_ups))
    answer = await ask(asked, ctx)
    if question.conversation is None and asked is question:
        return answer
    trace = dict(answer.trace)
    if asked is not question:
        trace = {"asked": asked.text, **trace}
    if question.conversation is not None and "entities" not in trace and ctx.remaining().steps >= 2:
        trace["entities"] = await entities_of(answer.evidence, ctx)
    return replace(answer, trace=trace)


async def on_its_own(text: str, ctx: Context, follow_ups: FollowUps) -> str:
    """Make a turn's question self-contained. With "rewrite", the LLM rewrites the question. With "resolve", the
    LLM finds terms that the question leaves out, and the function adds them. If the LLM's reply is unusable, the
    question stays unchanged."""
    turns = earlier(ctx.past)
    if follow_ups == "rewrite":
        try:
            fields = await ctx.generate(REWRITE_TURN, turns=_shown(turns, text, REWRITE_TURN, ctx), question=text)
        except AnswerError as error:
            ctx.fell_back(REWRITE_TURN, error)
            return text
        return fields.question.strip() or text
    try:
        reply = await ctx.generate(RESOLVE_TURN, turns=_shown(turns, text, RESOLVE_TURN, ctx), question=text)
    except AnswerError as error:
        ctx.fell_back(RESOLVE_TURN, error)
        return text
    words = " ".join(word for turn in turns for word in turn).casefold()
    wanted = (term.strip() for term in reply.terms)
    # Only words of the conversation: a model that invents terms would mislead the search.
    terms = [it for it in dict.fromkeys(wanted) if it and it.casefold() in words and it not in text]
    return f"{text} ({', '.join(terms)})" if terms else text


def earlier(past: Past) -> list[tuple[str, str]]:
    """Return (question, answer) for each earlier turn. The answer is empty if the turn failed or abstained."""
    return [(turn.text, (answer.text if answer is not None else None) or "") for turn, answer in past]


def _shown(turns: Sequence[tuple[str, str]], text: str, prompt: Prompt[Any], ctx: Context) -> str:
    """Write as many of the last turns as fit into the context window, next to `prompt` and `text`, the
    question of the current turn."""
    budget = ctx.text_budget(prompt) - len(text)

    def text_of(some: Sequence[tuple[str, str]]) -> str:
        return "".join(f"Question: {asked}\nAnswer: {reply}\n" for asked, reply in some)

    return text_of(fit_last(turns, lambda some: len(text_of(some)) <= budget))


async def entities_of(evidence: ScoredSegments | bytes | None, ctx: Context) -> list[str]:
    """Find the entities that an answer's evidence names, in the order of the evidence."""
    if isinstance(evidence, ScoredSegments):
        return list((await ctx.call(linearise, evidence)).entities)
    snippets = tuple(str(item["snippet"]) for item in orjson.loads(evidence or b"[]"))
    return list(await ctx.call(names_in, snippets)) if snippets else []
