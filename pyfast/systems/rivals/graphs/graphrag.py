"""GraphRAG: an LLM has written reports on a knowledge graph's communities. A local search reads the entities
nearest to a question, with their relations, reports and texts. A global search answers from each part of all
reports, and merges the answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from pyfast.engine import Answer, Context, Prompt, Question
from pyfast.errors import InputError
from pyfast.knowledge import Session
from pyfast.retrieval import Index, narrate, traced
from pyfast.systems import system
from pyfast.systems.combinations import Inert
from pyfast.systems.prompts import ANSWER, LONG_ANSWER, answer_prompt, final_text, long_text, unless_known
from pyfast.systems.rivals.common import CONCLUDE, NOTHING, conclusion, joined
from pyfast.systems.rivals.graphs.levels import described, found_in_graph, nearest_relations
from pyfast.systems.rivals.graphs.reports import PARTIAL, cited, partial, parts_of, reports_about, reports_of
from pyfast.systems.together import together
from pyfast.utils.log import LOG
from pyfast.utils.token_budget import CHARACTERS_PER_TOKEN, fit


class Settings(system.WithKnowledge, system.Answering):
    """The parameters from the paper and the authors' code."""

    inert: ClassVar[tuple[Inert, ...]] = (
        *system.Answering.inert,
        Inert(("k", "relations", "report_share", "text_share"), "mode", ("global",)),
        Inert(("read",), "mode", ("local",)),
        Inert(("level",), "read", ("texts",)),
    )

    mode: Literal["local", "global"] = Field(
        default="local",
        description="What the LLM reads. `local`: the entities nearest to the question, their relations and"
        " texts, and reports on their communities. `global`: all reports, for questions about the corpus as a"
        " whole.",
        json_schema_extra={"paper": "global is the paper's method; local is in the authors' code"},
    )
    level: int = Field(
        default=2,
        ge=0,
        le=100,
        description="The level of the communities whose reports are read: 0 for the largest, higher for their"
        " parts. The reports on communities that are not divided that far are read too.",
        json_schema_extra={"paper": "the conditions C0 to C3; 2 in the authors' code"},
    )
    read: Literal["reports", "texts"] = Field(
        default="reports",
        description="What a global search reads. `reports`: the reports on communities. `texts`: all passages.",
        json_schema_extra={"paper": "the conditions C0 to C3, and TS"},
    )
    tokens: int = Field(
        default=8000,
        ge=500,
        le=1_000_000,
        description="Maximum number of tokens that the LLM reads per call. A small context window limits it"
        " further.",
        json_schema_extra={"paper": "8k tokens"},
    )
    k: int = Field(
        default=10,
        ge=1,
        le=1000,
        description="Number of entities that a local search finds.",
        json_schema_extra={"paper": "top_k_entities in the authors' code"},
    )
    relations: int = Field(
        default=10,
        ge=1,
        le=1000,
        description="Maximum number of relations with other entities, for each entity found. Relations between"
        " the entities found are always included.",
        json_schema_extra={"paper": "top_k_relationships in the authors' code"},
    )
    report_share: float = Field(
        default=0.15,
        ge=0,
        le=1,
        description="Share of `tokens` that reports may use in a local search. Entities and relations use what"
        " remains after the shares of reports and texts.",
        json_schema_extra={"paper": "community_prop in the authors' code"},
    )
    text_share: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="Share of `tokens` that texts may use in a local search.",
        json_schema_extra={"paper": "text_unit_prop in the authors' code"},
    )

    @model_validator(mode="after")
    def _shares(self) -> Settings:
        if self.report_share + self.text_share > 1:
            raise ValueError("report_share and text_share must add up to at most 1")
        return self


async def answer(question: Question, ctx: Context, settings: Settings, session: Session) -> Answer:
    """Answer a question with a local or a global search."""
    search = local_search if settings.mode == "local" else global_search
    return await search(question, ctx, settings, session)


async def local_search(question: Question, ctx: Context, settings: Settings, session: Session) -> Answer:
    """Answer from the entities nearest to the question: from reports on their communities, their relations,
    and the texts that state the relations."""
    store, item = session.store, (question.text, session)
    found = await ctx.call(found_in_graph, item, store, "local", settings.k)
    found = found._replace(triples=await ctx.call(nearest_relations, found, store, settings.relations))
    names = tuple(store.entities[entity] for entity in found.entities)
    trace: dict[str, Any] = {
        "entities": list(names),
        "relations": list(map(list, store.triples(np.array(found.triples, np.int32)))),
    }
    prompt = LONG_ANSWER if settings.long_answer else answer_prompt(ctx, found.texts)
    room = max(min(int(settings.tokens * CHARACTERS_PER_TOKEN), ctx.text_budget(prompt) - len(question.text)), 600)
    of_reports, of_texts = int(room * settings.report_share), int(room * settings.text_share)
    reports = await ctx.call(reports_about, names, settings.level)
    shown = fit([report.text for report in reports], of_reports, first="cut" if of_reports else "drop")
    entities, relations = await ctx.call(described, (found, session), store)
    entities = fit(entities, room - of_reports - of_texts, first="cut")
    relations = fit(relations, room - of_reports - of_texts - sum(len(line) + 1 for line in entities))
    text = await ctx.call(narrate, found.texts, of_texts) if of_texts else ""
    parts = ("Reports", shown), ("Entities", entities), ("Relations", relations), ("Texts", text.split("\n"))
    context = "\n\n".join("\n".join([f"{name}:", *lines]) for name, lines in parts if any(lines))

    read = reports[: len(shown)]
    texts = found.texts.head(text.count("\n") + 1 if text else 0)
    trace |= {"reports": [report.uri for report in read], "steps": [{"query": question.text, **traced(texts)}]}
    pool = joined(cited([(1.0, report) for report in read]), texts)
    ctx.so_far(lambda: Answer(None, ctx.evidence(pool), trace))
    told = {"context": context or "(nothing was found)", "question": question.text}
    if settings.long_answer:
        long = await ctx.generate(LONG_ANSWER, **told)
        return Answer(long_text(long.paragraphs), ctx.evidence(pool), trace)
    reply = await ctx.generate(unless_known(answer_prompt(ctx, texts), settings.abstain), path="", **told)
    return Answer(final_text(reply.answer), ctx.evidence(pool), trace)


async def global_search(question: Question, ctx: Context, settings: Settings, session: Session) -> Answer:
    """Answer from each part of all reports, and then from the most helpful of these answers."""
    most = int(settings.tokens * CHARACTERS_PER_TOKEN)
    room = min(most, ctx.text_budget(PARTIAL) - len(question.text))
    parts = await ctx.call(parts_of, (question.text, max(room, 100)), settings.read, settings.level)
    trace: dict[str, Any] = {"parts": len(parts), "partial": []}
    pool = NOTHING
    ctx.so_far(lambda: Answer(None, ctx.evidence(pool), trace))
    replies = await together(partial(question, part, ctx) for part in parts)
    helpful = sorted((one for one in replies if one[0]), key=lambda one: -one[0])
    trace["partial"] = [
        {"score": score, "answer": text, "used": [one.uri for one in used]} for score, text, used in helpful
    ]
    prompt: Prompt[Any] = LONG_ANSWER if settings.long_answer else CONCLUDE
    room = min(most, ctx.text_budget(prompt) - len(question.text))
    notes = fit([" ".join(text.split()) for _, text, _ in helpful], room, first="cut")
    pool = cited([(float(score), one) for score, _, used in helpful[: len(notes)] for one in used])
    if not notes and (settings.long_answer or settings.abstain):
        return Answer(None, ctx.evidence(pool), trace)
    if settings.long_answer:
        long = await ctx.generate(LONG_ANSWER, context="\n".join(notes), question=question.text)
        return Answer(long_text(long.paragraphs), ctx.evidence(pool), trace)
    text = await conclusion(question, "\n".join(notes) or "(none)", ctx, settings.abstain)
    return Answer(text, ctx.evidence(pool), trace)


def opens(index: Index, settings: Settings, run: Path | None) -> Session:
    """Open the knowledge graph. A global search needs reports, unless filters leave out some documents."""
    if settings.read == "reports" and not reports_of(index).reports:
        make = "`pyfast corpus summarize --of communities` builds an index with reports"
        if settings.mode == "global" and not index.is_restricted:
            raise InputError(f"{index.folder} has no reports; {make}")
        LOG.warning("%s has no reports; %s", index.folder, make)
    return system.opens(index, settings, run)


SYSTEM = system.System(
    "graphrag",
    answer,
    Settings,
    (PARTIAL, CONCLUDE, ANSWER, LONG_ANSWER),
    opens=opens,
    summary="reports on communities of a knowledge graph: those on the question's entities, or all, in parts",
    paper="From Local to Global: A Graph RAG Approach to Query-Focused Summarization",
)
