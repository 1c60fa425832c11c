"""LightRAG: keywords about details lead to entities, keywords about themes lead to relations. The LLM answers from
the entities, the relations, and the texts that state them."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from pyfast.engine import Answer, Context, Prompt, Question
from pyfast.knowledge import Session
from pyfast.retrieval import Pool, narrate, traced
from pyfast.systems import system
from pyfast.systems.combinations import Inert
from pyfast.systems.mtqa.prompts import KEYWORDS
from pyfast.systems.prompts import (
    ANSWER,
    LONG_ANSWER,
    answer_prompt,
    final_text,
    long_text,
    tidied,
    unless_known,
)
from pyfast.systems.rivals.common import usable
from pyfast.systems.rivals.graphs.levels import Found, Level, described, found_in_graph, joined_levels
from pyfast.utils.token_budget import CHARACTERS_PER_TOKEN, fit


class Settings(system.WithKnowledge, system.Answering):
    """The parameters from the paper and the authors' code."""

    inert: ClassVar[tuple[Inert, ...]] = (
        *system.Answering.inert,
        Inert(("passages",), "mode", ("local", "global", "hybrid")),
        Inert(("text_tokens",), "source_text", (False,)),
    )

    mode: Literal["local", "global", "hybrid", "mix"] = Field(
        default="hybrid",
        description="What to search. `local`: entities. `global`: relations. `hybrid`: both. `mix`: both, and"
        " passages too, with the question as the query.",
        json_schema_extra={"paper": "dual-level retrieval; -High and -Low in the ablation"},
    )
    k: int = Field(
        default=60,
        ge=1,
        le=1000,
        description="Number of entities, and also of relations, retrieved per question.",
        json_schema_extra={"paper": "top_k in the authors' code"},
    )
    passages: Annotated[int, system.OF_PASSAGES] = Field(
        default=20,
        ge=1,
        le=1000,
        description="Number of passages retrieved with the question as the query.",
        json_schema_extra={"paper": "chunk_top_k in the authors' code"},
    )
    source_text: bool = Field(
        default=True,
        description="Let the LLM read the texts that state the relations. Off: it reads only entities and "
        "relations.",
        json_schema_extra={"paper": "-Origin in the ablation"},
    )
    entity_tokens: int = Field(
        default=4000,
        ge=100,
        le=1_000_000,
        description="Maximum number of tokens for entities in the prompt.",
        json_schema_extra={"paper": "max_token_for_local_context in the authors' code"},
    )
    relation_tokens: int = Field(
        default=4000,
        ge=100,
        le=1_000_000,
        description="Maximum number of tokens for relations in the prompt.",
        json_schema_extra={"paper": "max_token_for_global_context in the authors' code"},
    )
    text_tokens: int = Field(
        default=4000,
        ge=100,
        le=1_000_000,
        description="Maximum number of tokens for source texts in the prompt.",
        json_schema_extra={"paper": "max_token_for_text_unit in the authors' code"},
    )


async def answer(question: Question, ctx: Context, settings: Settings, session: Session) -> Answer:
    """Answer a question from the results of both levels' keywords in the graph."""
    trace: dict[str, Any] = {}
    found = Found()
    ctx.so_far(lambda: Answer(None, ctx.evidence(found.texts), trace))
    details, themes = await keywords(question, ctx)
    trace["keywords"] = {"detailed": details, "general": themes}

    levels = []
    pairs: tuple[tuple[Level, list[str]], ...] = (("local", details), ("global", themes))
    for level, words in pairs:
        if settings.mode in (level, "hybrid", "mix") and words:
            item = ", ".join(words), session
            levels.append(await ctx.call(found_in_graph, item, session.store, level, settings.k))
    if settings.mode == "mix":
        levels.append(Found(texts=await ctx.retrieve(question.text, settings.passages)))
    found = joined_levels(levels)
    trace["entities"] = [session.store.entities[entity] for entity in found.entities]
    trace["relations"] = list(map(list, session.store.triples(np.array(found.triples, np.int32))))

    prompt = LONG_ANSWER if settings.long_answer else answer_prompt(ctx, found.texts)
    context, read = await evidence(question, found, prompt, ctx, settings, session)
    found = found._replace(texts=read)
    trace["steps"] = [{"query": question.text, **traced(read)}]
    if settings.long_answer:
        long = await ctx.generate(LONG_ANSWER, context=context, question=question.text)
        return Answer(long_text(long.paragraphs), ctx.evidence(read), trace)
    short = unless_known(answer_prompt(ctx, read), settings.abstain)
    reply = await ctx.generate(short, context=context, path="", question=question.text)
    return Answer(final_text(reply.answer), ctx.evidence(read), trace)


async def keywords(question: Question, ctx: Context) -> tuple[list[str], list[str]]:
    """Let the LLM write the keywords of both levels. Without a usable reply, the question itself is used."""
    reply = await usable(ctx, KEYWORDS, question=question.text, thoughts="")
    found = (tidied(reply.detailed), tidied(reply.general)) if reply else ([], [])
    return found if any(found) else ([question.text], [question.text])


async def evidence(
    question: Question, found: Found, prompt: Prompt[Any], ctx: Context, settings: Settings, session: Session
) -> tuple[str, Pool]:
    """Write entities, relations and source texts, each within its limit and all within the context window.
    Returns the text and the source texts in it."""
    entities, relations = await ctx.call(described, (found, session), session.store)
    room = max(ctx.text_budget(prompt) - len(question.text), 600)
    parts = []
    for name, lines, tokens in (
        ("Entities:", entities, settings.entity_tokens),
        ("Relations:", relations, settings.relation_tokens),
    ):
        if shown := fit(lines, min(int(tokens * CHARACTERS_PER_TOKEN), room // 3), first="cut"):
            parts.append("\n".join([name, *shown]))
    left = room - sum(map(len, parts))
    if not settings.source_text or not len(found.texts):
        return "\n\n".join(parts) or "(nothing was found)", found.texts.head(0)
    text = await ctx.call(narrate, found.texts, min(int(settings.text_tokens * CHARACTERS_PER_TOKEN), left))
    return "\n\n".join([*parts, f"Texts:\n{text}"]), found.texts.head(text.count("\n") + 1)


SYSTEM = system.System(
    "lightrag",
    answer,
    Settings,
    (KEYWORDS, ANSWER, LONG_ANSWER),
    opens=system.opens,
    summary="keywords for details and for themes lead to entities and relations of a graph, and to their texts",
    paper="LightRAG: Simple and Fast Retrieval-Augmented Generation",
)
