"""Self-ask: the LLM asks itself follow-up questions, one at a time. Each is answered from a search, and the
LLM answers the question from these intermediate answers."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, Field

from pyfast.engine import Answer, Context, Prompt, Question
from pyfast.retrieval import traced
from pyfast.systems import system
from pyfast.systems.combinations import Inert
from pyfast.systems.prompts import DIRECT, EXTRACT, INSUFFICIENT, answers_in, final_text, unless_known
from pyfast.systems.rivals.common import CONCLUDE, NOTHING, conclusion, joined, unstreamed, usable

UNKNOWN = "not found"
"""What stands for the intermediate answer if a follow-up question has none"""


class FollowUpFields(BaseModel):
    """The next follow-up question, or the final answer."""

    follow_up: str = Field(default="", max_length=200)
    answer: str = Field(default="", max_length=300)


FOLLOW_UP = Prompt(
    name="follow_up",
    system=(
        "You answer a question with the help of simple follow-up questions, which you ask one at a time. Reply in"
        " JSON with two fields. follow_up: the next question whose answer you need, which asks for one fact and"
        " can be understood alone, in at most 200 characters. answer: empty as long as you ask. If you need no"
        " further follow-up question, follow_up is empty, and answer has only the name, number or short phrase"
        " that the question asks for, in at most 300 characters; if there are several answers, give all of them,"
        " separated by semicolons. If the intermediate answers do not lead to the answer, the answer is"
        f" '{INSUFFICIENT}'."
    ),
    user="""\
Question: In which country was the author of Pippi Longstocking born?
{"follow_up": "Who is the author of Pippi Longstocking?", "answer": ""}
Intermediate answer: Astrid Lindgren
{"follow_up": "In which country was Astrid Lindgren born?", "answer": ""}
Intermediate answer: Sweden
{"follow_up": "", "answer": "Sweden"}

Question: $question
$notes""",
    answer=FollowUpFields,
    max_tokens=400,
    role="answer",
)


class Settings(system.Abstaining):
    """The parameters from the paper."""

    inert: ClassVar[tuple[Inert, ...]] = (Inert(("k",), "search", (False,)),)

    search: bool = Field(
        default=True,
        description="Answer each follow-up question from the passages of a search. Off: the LLM answers it from"
        " its own knowledge.",
        json_schema_extra={"paper": "self-ask with a search engine, and self-ask alone"},
    )
    follow_ups: int = Field(
        default=5,
        ge=1,
        le=20,
        description="Maximum number of follow-up questions. After the last, the LLM must answer.",
    )
    k: system.PassageCount = Field(
        default=5,
        ge=1,
        description="Number of passages and table rows retrieved per follow-up question.",
    )


async def answer(question: Question, ctx: Context, settings: Settings) -> Answer:
    """Answer a question: ask follow-up questions until the LLM gives the final answer."""
    steps: list[dict[str, Any]] = []
    trace = {"steps": steps}
    collected, notes = NOTHING, ""
    ctx.so_far(lambda: Answer(None, ctx.evidence(collected), trace))
    prompt = unless_known(FOLLOW_UP, settings.abstain)
    for _ in range(settings.follow_ups):
        reply = await ctx.generate(prompt, question=question.text, notes=notes)
        asked = reply.follow_up.strip()
        if not asked and reply.answer.strip():
            return Answer(final_text(reply.answer), ctx.evidence(collected), trace)
        if not asked or asked in [step["query"] for step in steps]:
            break  # The search would repeat that of an earlier question.
        steps.append({"query": asked})
        if settings.search:
            pool = await ctx.retrieve(asked, settings.k)
            collected = joined(collected, pool)
            steps[-1] |= traced(pool)
            context = await ctx.narrative(pool, EXTRACT)
            intermediate = await found_in(context, asked, ctx)
        else:
            intermediate = final_text((await ctx.generate(unstreamed(DIRECT), question=asked)).answer) or UNKNOWN
        steps[-1]["answer"] = intermediate
        notes += f"Follow-up question: {asked}\nIntermediate answer: {intermediate}\n"
    text = await conclusion(question, notes, ctx, settings.abstain)
    return Answer(text, ctx.evidence(collected), trace)


async def found_in(context: str, asked: str, ctx: Context) -> str:
    """Let the LLM answer a follow-up question from passages."""
    reply = await usable(ctx, EXTRACT, context=context, entity_type="name or value", question=asked)
    return next(iter(answers_in([reply.entity] if reply else [])), UNKNOWN)


SYSTEM = system.System(
    "self_ask",
    answer,
    Settings,
    (FOLLOW_UP, EXTRACT, DIRECT, CONCLUDE),
    summary="the LLM asks follow-up questions, one at a time, each with a search and an intermediate answer",
    paper="Measuring and Narrowing the Compositionality Gap in Language Models",
)
