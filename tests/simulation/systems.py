"""Systems for the simulation: chains of calls, calls at the same time, batched work, fallbacks, earlier turns.
Their right answers are computed a second time here, without the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import orjson
from pydantic import BaseModel

from pyfast.engine import Answer, Context, Prompt, Question
from pyfast.errors import AnswerError
from pyfast.utils.options import Sampling
from simulation.llm import digest, good

STAGES = ("call", "call", "call", "call", "fan 2", "samples", "work", "may fail", "sleep")
SAMPLES = ("samples", "twins")
Ask = Callable[[Question, Context], Awaitable[Answer]]


class Reply(BaseModel):
    answer: str


PROMPTS = tuple(
    Prompt(name, f"Reply in JSON with the field answer. Prompt {name}.", "Text: $text", Reply, 64)
    for name in ("call", "fan", "try")
)
CALL, FAN, TRY = PROMPTS
SLEEP_S = 0.5
FELL_BACK = "fell back"
SAMPLED = Sampling(1.0)


def shouted(texts: Sequence[str]) -> list[str]:
    """The work of a batch."""
    return [text.upper() for text in texts]


def text_of(question: Question, stage: int, carried: str, part: int = 0) -> str:
    return f"<{question.id}> stage {stage} part {part}: {question.text} {carried}"


def user(text: str) -> str:
    """The user's message, as the prompts write it."""
    return f"Text: {text}"


def begin(past: Sequence[str | None]) -> str:
    return digest(" ".join(answer or "-" for answer in past)) if past else ""


def system(stages: Sequence[str]) -> Ask:
    """A system with these stages, one after the other."""

    async def ask(question: Question, context: Context) -> Answer:
        carried = begin([answer and answer.text for _, answer in context.past])
        replies: list[Any] = []
        context.so_far(lambda: Answer(None, None, {"replies": replies}))
        for place, stage in enumerate(stages):
            text = text_of(question, place, carried)
            if stage == "call":
                carried = (await context.generate(CALL, text=text)).answer
            elif stage.startswith("fan"):
                texts = [text_of(question, place, carried, part) for part in range(int(stage[4:]))]
                calls = [context.generate(FAN, text=one) for one in texts]
                answers = await asyncio.gather(*calls, return_exceptions=True)
                for answer in answers:
                    if isinstance(answer, BaseException):
                        raise answer
                carried = digest(
                    " ".join(answer.answer for answer in answers if not isinstance(answer, BaseException))
                )
            elif stage == "samples":  # Two equal requests, and two replies.
                samples = [(await context.generate(CALL, SAMPLED, text=text)).answer for _ in range(2)]
                carried = " ".join(samples)
            elif stage == "twins":  # The same at the same time.
                both = await asyncio.gather(*(context.generate(CALL, SAMPLED, text=text) for _ in range(2)))
                carried = " ".join(one.answer for one in both)
            elif stage == "work":
                carried = await context.call(shouted, text)
            elif stage == "may fail":
                try:
                    carried = (await context.generate(TRY, text=text)).answer
                except AnswerError as error:
                    context.fell_back(TRY, error)
                    carried = FELL_BACK
            elif stage == "sleep":
                await asyncio.sleep(SLEEP_S)
            replies.append(carried)
        final = digest(carried)
        return Answer(None if final[0] in "01" else final, evidence(question, carried), {"replies": replies})

    return ask


def evidence(question: Question, carried: str) -> bytes:
    return orjson.dumps([{"uri": f"doc:{question.id}", "snippet": carried}])


def expected(
    question: Question, stages: Sequence[str], past: Sequence[str | None], replies: Sequence[str]
) -> tuple[str | None, list[str], list[list[str]]]:
    """What the system must answer: (the answer, what was carried after each stage, the prompts of each stage). Of
    `replies`, what it carried, only samples and where it fell back count."""
    carried, all_carried, prompts = begin(past), list[str](), list[list[str]]()
    for place, stage in enumerate(stages):
        text, asked = text_of(question, place, carried), list[str]()
        if stage in ("call", "may fail"):
            asked = [user(text)]
            carried = good(user(text))
            if stage == "may fail" and place < len(replies) and replies[place] == FELL_BACK:
                carried = FELL_BACK
        elif stage.startswith("fan"):
            asked = [user(text_of(question, place, carried, part)) for part in range(int(stage[4:]))]
            carried = digest(" ".join(map(good, asked)))
        elif stage in SAMPLES:
            asked = [user(text), user(text)]
            samples = (replies[place] if place < len(replies) else "").split()
            is_right = (
                len(samples) == 4 and samples[0] == samples[2] == good(asked[0]) and samples[1] != samples[3]
            )
            carried = " ".join(samples) if is_right else "two samples"
        elif stage == "work":
            carried = text.upper()
        all_carried.append(carried)
        prompts.append(asked)
    final = digest(carried)
    return None if final[0] in "01" else final, all_carried, prompts
