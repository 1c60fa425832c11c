"""Systems that each break one promise; `pyfast check` is to find which."""

import os
from dataclasses import replace
from itertools import count
from typing import Any

from pydantic import BaseModel, Field

from pyfast.engine import Answer, Context, Question
from pyfast.errors import AnswerError, BudgetError
from pyfast.llm import Request, dialogue
from pyfast.systems import Settings, System
from pyfast.systems.prompts import DIRECT, PLAN

_NUMBERS = count()
_ASKED: list[str] = []
NAMES = ("first", "second", "third")


class Named(BaseModel):
    """A name, by its number."""

    number: int = Field(ge=-(10**6), le=10**13, examples=[0, 1, 2])


NAMED = replace(DIRECT, name="named", answer=Named)


async def good(question: Question, ctx: Context, settings: Settings) -> Answer:
    """Two calls, one after the other where the first is answered."""
    first = await ctx.generate(DIRECT, question=question.text)
    return Answer((await ctx.generate(DIRECT, question=f"{question.text} {first.answer}")).answer)


async def numbers(question: Question, ctx: Context, settings: Settings) -> Answer:
    """What it answers depends on what was asked before."""
    return Answer(f"{(await good(question, ctx, settings)).text} {next(_NUMBERS)}")


async def looks_aside(question: Question, ctx: Context, settings: Settings) -> Answer:
    """What it answers depends on what is asked at the same time."""
    _ASKED.append(question.id)
    answer = await good(question, ctx, settings)
    beside = len(_ASKED)
    _ASKED.remove(question.id)
    return Answer(answer.text, trace={"beside": beside})


async def of_the_process(question: Question, ctx: Context, settings: Settings) -> Answer:
    """What it answers depends on the process."""
    return Answer(f"{(await good(question, ctx, settings)).text} {os.getpid()}")


async def greedy(question: Question, ctx: Context, settings: Settings) -> Answer:
    """It does not hear that its budget is used up."""
    try:
        return await good(question, ctx, settings)
    except BudgetError:
        return Answer("all the same")


async def believing(question: Question, ctx: Context, settings: Settings) -> Answer:
    """It takes numbers of the LLM for places in a list."""
    return Answer(NAMES[(await ctx.generate(NAMED, question=question.text)).number])


async def leaking(question: Question, ctx: Context, settings: Settings) -> Answer:
    """It writes its own requests, and does not look at what is in them."""
    return Answer((await ctx.complete(Request(dialogue(question.text), 50), "own")).text)


async def stubborn(question: Question, ctx: Context, settings: Settings) -> Answer:
    """It asks until it likes the answer."""
    while True:
        try:
            if (await ctx.generate(PLAN, question=question.text)).query.strip():
                return Answer("well")
        except AnswerError:
            pass


async def broken(question: Question, ctx: Context, settings: Settings) -> Answer:
    """It fails where the engine works."""
    raise KeyError(question.id[0])


class Perhaps(Settings):
    """A value that run.toml cannot hold."""

    limit: int | None = None


def _system(answer: Any, settings: type[Settings] = Settings) -> System:
    return System(answer.__name__, answer, settings, (DIRECT,), needs_index=False)


GOOD = _system(good)
NUMBERS = _system(numbers)
LOOKS_ASIDE = _system(looks_aside)
OF_THE_PROCESS = _system(of_the_process)
GREEDY = _system(greedy)
BELIEVING = _system(believing)
LEAKING = _system(leaking)
STUBBORN = _system(stubborn)
BROKEN = _system(broken)
UNWRITABLE = _system(good, Perhaps)
