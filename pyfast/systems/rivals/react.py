"""ReAct: an agent that thinks, acts and observes in turn. Its actions are searching, looking something up in
what was found, and finishing with an answer."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

from pyfast.engine import Answer, Context, Prompt, Question
from pyfast.systems import system
from pyfast.systems.combinations import Inert
from pyfast.systems.prompts import INSUFFICIENT, final_text, unless_known
from pyfast.systems.rivals.common import CONCLUDE, conclusion, usable
from pyfast.systems.rivals.episode import Episode
from pyfast.systems.rivals.tags import FORMATS, in_tags
from pyfast.utils.token_budget import fit

_WORDS = 800
"""The maximum length of a thought and an action in the notes, in characters"""
_LEAST = 200
"""The minimum length of an observation, in characters"""


class ActionFields(BaseModel):
    """An action of the agent."""

    action: Literal["search", "lookup", "finish"] = Field(examples=["search", "lookup"])
    input: str = Field(max_length=300)


class ThoughtfulFields(BaseModel):
    """A thought, and then an action."""

    thought: str = Field(max_length=400)
    action: Literal["search", "lookup", "finish"] = Field(examples=["search", "lookup"])
    input: str = Field(max_length=300)


def _act(name: str, thought: str, fields: type[BaseModel], max_tokens: int) -> Prompt[Any]:
    return Prompt(
        name=name,
        system=(
            f"You answer a question by looking things up, one action at a time. Reply in JSON: {thought}action,"
            " one of search (find passages for a query), lookup (find the next passage that has certain words, in"
            " the documents of the last search) and finish (give the answer); then input, the query, the words or"
            " the answer, in at most 300 characters. Search for one fact at a time. The answer is only the name,"
            " number or short phrase that the question asks for; if there are several answers, give all of them,"
            f" separated by semicolons. If you cannot find the answer, the answer is '{INSUFFICIENT}'."
        ),
        user="Question: $question\n$notes",
        answer=fields,
        max_tokens=max_tokens,
        role="answer",
    )


ACT = _act(
    "act", "thought, what you know and what is missing, in at most 400 characters; then ", ThoughtfulFields, 560
)
ACT_ALONE = _act("act_alone", "", ActionFields, 340)


class Settings(system.Abstaining):
    """The parameters from the paper, and the format in which the LLM acts."""

    inert: ClassVar[tuple[Inert, ...]] = (
        Inert(("thoughts", "abstain"), "format", tuple(FORMATS)),
        Inert(("instructions", "turn_tokens"), "format", ("json",)),
    )

    steps: int = Field(
        default=7,
        ge=1,
        le=50,
        description="Maximum number of actions. After the last, the LLM must answer.",
        json_schema_extra={"paper": "7 steps for HotpotQA, 5 for FEVER"},
    )
    k: system.PassageCount = Field(
        default=3,
        ge=1,
        description="Number of passages and table rows that each search shows.",
    )
    thoughts: bool = Field(
        default=True,
        description="Let the LLM write a thought before each action. Off: it only acts (Act).",
        json_schema_extra={"paper": "the comparison of ReAct and Act"},
    )
    format: Literal["json", "search_r1", "search_o1"] = Field(
        default="json",
        description="How the LLM writes its actions. `json`: as replies in JSON. `search_r1`, `search_o1`: with"
        " the tags of Search-R1 and Search-o1 models, in one text that the LLM continues after each search.",
        json_schema_extra={"paper": "Search-R1; Search-o1"},
    )
    instructions: str = Field(
        default="",
        description="The text before the question, such as the instructions with which the model was "
        "trained. Empty:"
        " pyfast's own instructions.",
    )
    turn_tokens: int = Field(
        default=500,
        ge=16,
        le=100_000,
        description="Maximum number of tokens per turn: a thought with its query or answer. Models that"
        " reason at length need more.",
    )


async def answer(question: Question, ctx: Context, settings: Settings) -> Answer:
    """Answer a question with thoughts, actions and observations."""
    episode = Episode()
    ctx.so_far(lambda: episode.result(None, ctx))
    if settings.format != "json":
        return episode.result(await in_tags(question.text, ctx, settings, episode), ctx)
    prompt = unless_known(ACT if settings.thoughts else ACT_ALONE, settings.abstain)
    room = max(ctx.text_budget(prompt) - len(question.text), _LEAST)
    characters = max(room // settings.steps - _WORDS, _LEAST)
    notes: list[str] = []
    for number in range(1, settings.steps + 1):
        known = "\n".join(fit(notes[::-1], room, first="cut")[::-1])
        reply = await usable(ctx, prompt, question=question.text, notes=known)
        if reply is None:
            break
        given = reply.input.strip()
        episode.steps.append({"action": reply.action, **({"thought": reply.thought} if settings.thoughts else {})})
        if reply.action == "finish":
            return episode.result(final_text(given), ctx)
        do = episode.search(given, ctx, settings.k, characters) if reply.action == "search" else None
        seen = await (do or episode.look_up(given, ctx, characters))
        thought = f"Thought {number}: {reply.thought}\n" if settings.thoughts else ""
        notes.append(f"{thought}Action {number}: {reply.action}: {given}\nObservation {number}: {seen}")
    known = "\n".join(fit(notes[::-1], room, first="cut")[::-1])
    return episode.result(await conclusion(question, known, ctx, settings.abstain), ctx)


SYSTEM = system.System(
    "react",
    answer,
    Settings,
    (ACT, ACT_ALONE, CONCLUDE),
    requests={"turn": "answer"},
    summary="an agent that thinks, searches, looks things up and answers, in JSON or with tuned models' tags",
    paper="ReAct: Synergizing Reasoning and Acting in Language Models",
)
