"""Think-on-Graph: paths begin at the entities of a question. In each round, the LLM chooses the relations to
follow, then the entities behind them, and says whether the paths contain the answer."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Literal, NamedTuple

from pydantic import Field

from pyfast.engine import Answer, Context, Prompt, Question
from pyfast.knowledge import Session
from pyfast.systems import direct, system
from pyfast.systems.mtqa.prompts import KEYWORDS
from pyfast.systems.prompts import DIRECT, final_text, tidied
from pyfast.systems.rivals.common import usable
from pyfast.systems.rivals.graphs.steps import (
    ENTITIES,
    RELATIONS,
    VERDICT,
    ChoiceFields,
    Edge,
    edges_around,
    stating,
    topic_entities,
    triples_behind,
)
from pyfast.systems.together import together
from pyfast.utils.token_budget import fit


class Settings(system.WithKnowledge):
    """The parameters from the paper."""

    width: int = Field(
        default=3,
        ge=1,
        le=20,
        description="Number of paths to keep in each round, and of entities from which paths start (N).",
        json_schema_extra={"paper": "the width N of the beam, 3"},
    )
    depth: int = Field(
        default=3,
        ge=1,
        le=20,
        description="Maximum number of rounds (D). Each extends the paths by one relation.",
        json_schema_extra={"paper": "the maximum depth D, 3"},
    )
    candidates: int = Field(
        default=20,
        ge=1,
        le=1000,
        description="Maximum number of entities considered per relation. If there are more, this many are"
        " drawn at random.",
        json_schema_extra={"paper": "20 in the authors' code"},
    )
    entities: Literal["chosen", "drawn"] = Field(
        default="chosen",
        description="How a relation's entities are chosen. `chosen`: by the LLM. `drawn`: at random.",
        json_schema_extra={"paper": "ToG, and ToG-R"},
    )


class Path(NamedTuple):
    """A path from an entity of the question."""

    end: int
    """The entity to which it leads"""
    triples: tuple[int, ...] = ()
    score: float = 1.0


async def answer(question: Question, ctx: Context, settings: Settings, session: Session) -> Answer:
    """Answer a question from paths in the graph or, if they do not suffice, from the LLM's own knowledge."""
    trace: dict[str, Any] = {"rounds": [], "answered_by": "llm"}
    names, store = session.store.entities, session.store
    paths = [Path(entity) for entity in await topics(question, ctx, settings, session)]
    trace["topics"] = [names[path.end] for path in paths]
    for _ in range(settings.depth if paths else 0):
        paths = await longer(question, paths, ctx, settings, session)
        if not paths:
            break
        trace["rounds"].append([[list(store.triple(triple)) for triple in path.triples] for path in paths])
        triples = list(dict.fromkeys(triple for path in paths for triple in path.triples))
        read = await ctx.call(stating, (tuple(triples), session))
        ctx.so_far(lambda read=read: Answer(None, ctx.evidence(read), trace))  # type: ignore[misc]
        lines = fit(
            [" | ".join(store.triple(triple)) for triple in triples], ctx.text_budget(VERDICT), first="cut"
        )
        verdict = await usable(ctx, VERDICT, lines="\n".join(lines), question=question.text)
        if verdict and verdict.sufficient and (text := final_text(verdict.answer)):
            return Answer(text, ctx.evidence(read), trace | {"answered_by": "graph"})
    known = await direct.answer(question, ctx, system.Answering(abstain=settings.abstain))
    return Answer(known.text, trace=trace)


async def topics(question: Question, ctx: Context, settings: Settings, session: Session) -> list[int]:
    """Find the entities at which the paths begin: those that the LLM names, or else the nearest to the
    question.
    """
    reply = await usable(ctx, KEYWORDS, question=question.text, thoughts="")
    words = tidied(reply.detailed) if reply else []
    item = tuple(words or [question.text]), session
    return (await ctx.call(topic_entities, item, session.store))[: settings.width]


async def longer(
    question: Question, paths: Sequence[Path], ctx: Context, settings: Settings, session: Session
) -> list[Path]:
    """Extend the best paths by one relation: first choose relations, then the entities behind them."""
    store, drawn = session.store, Random(f"{question.text} {len(paths[0].triples)}")
    around = await ctx.call(edges_around, (tuple((path.end, path.triples[-1:]) for path in paths), session), store)
    scores = await together(
        chosen(RELATIONS, question, path, [edge.line for edge in edges], ctx, settings, session)
        for path, edges in zip(paths, around, strict=True)
    )
    kept: list[tuple[float, Path, Edge]] = [
        (path.score * score, path, edges[at])
        for path, edges, found in zip(paths, around, scores, strict=True)
        for at, score in found
    ]
    kept = sorted(kept, key=lambda one: -one[0])[: settings.width]
    behind = await ctx.call(triples_behind, (tuple(edge for _, _, edge in kept), session), store)
    behind = [sorted(drawn.sample(one, min(len(one), settings.candidates))) for one in behind]
    if settings.entities == "drawn":
        picked = [
            [(at, 1.0) for at in drawn.sample(range(len(one)), min(len(one), settings.width))] for one in behind
        ]
    else:
        picked = await together(
            chosen(ENTITIES, question, path, [" | ".join(store.triple(at)) for at in one], ctx, settings, session)
            for (_, path, _), one in zip(kept, behind, strict=True)
        )
    made = {}
    for (score, path, edge), triples, found in zip(kept, behind, picked, strict=True):
        for at, worth in found:
            end = store.tail if edge.outward else store.head
            made[path.triples, triples[at]] = Path(
                int(end[triples[at]]), (*path.triples, triples[at]), score * worth
            )
    return sorted(made.values(), key=lambda path: -path.score)[: settings.width]


async def chosen(
    prompt: Prompt[ChoiceFields],
    question: Question,
    path: Path,
    lines: Sequence[str],
    ctx: Context,
    settings: Settings,
    session: Session,
) -> list[tuple[int, float]]:
    """Let the LLM choose among lines. Returns the positions of at most `width` lines, with their scores. A
    single line is always chosen. Without a usable reply, the first lines are chosen."""
    if len(lines) < 2:
        return [(at, 1.0) for at in range(len(lines))]
    store, most = session.store, min(settings.width, len(lines))
    way = [" | ".join(store.triple(triple)) for triple in path.triples]
    room = ctx.text_budget(prompt) - len(question.text)
    before = "".join(f"{line}\n" for line in fit(way[::-1], room // 4)[::-1])
    shown = fit([f"{at}. {line}" for at, line in enumerate(lines, start=1)], room - len(before), first="cut")
    texts = {"path": f"Path so far:\n{before}\n" if before else "", "lines": "\n".join(shown), "most": str(most)}
    reply = await usable(ctx, prompt, question=question.text, **texts)
    if reply is None:
        return [(at, 1 / most) for at in range(most)]
    best: dict[int, float] = {}
    for one in reply.chosen:
        if one.number <= len(shown):
            best[one.number - 1] = max(one.score, best.get(one.number - 1, 0.0))
    return sorted(best.items(), key=lambda item: -item[1])[: settings.width]


SYSTEM = system.System(
    "tog",
    answer,
    Settings,
    (KEYWORDS, RELATIONS, ENTITIES, VERDICT, DIRECT),
    opens=system.opens,
    summary="a beam search for paths in a knowledge graph, along relations and entities that the LLM chooses",
    paper="Think-on-Graph: Deep and Responsible Reasoning of Large Language Model on Knowledge Graph",
)
