"""HSEQ-H: the answer from the evidence package alone, and the verifier that may send the iterator on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel, Field, create_model

from pyfast.engine import Context, Prompt
from pyfast.retrieval import Package
from pyfast.systems.prompts import INSUFFICIENT

TOKENS = 1000
"""What a head's call takes at least: instructions, its answer, and a few short lines of evidence"""
_MOST_SUPPORTING = 8
_SHORTEST = 40  # characters of a line below which evidence says nothing
_FRAME = 6  # characters of a line beside its text


class HeadFields(BaseModel):
    """The answer, and the numbers of the evidence that it rests on."""

    answer: str = Field(max_length=200)
    supporting: list[int]


class VerdictFields(BaseModel):
    """Whether the evidence is at odds with itself or with the answer."""

    contradiction: bool
    settle: str = Field(max_length=120)


@cache  # schemas are compiled by backends, once for each schema object
def head_prompt(pieces: int, attempts: int | None = None) -> Prompt[HeadFields]:
    """The head's prompt for so many pieces of evidence: it can support its answer with no other."""
    labels: Any = Literal[tuple(range(1, pieces + 1))]
    supporting = (list[labels], Field(max_length=min(pieces, _MOST_SUPPORTING)))
    return Prompt(
        name="head",
        system=(
            "You answer questions from numbered evidence alone. Reply in JSON. answer: only the name, number, "
            "short phrase, yes or no that is asked for, no sentence; "
            f"'{INSUFFICIENT}' if the evidence does not tell. "
            "supporting: the numbers of the evidence that it rests on."
        ),
        user="Evidence:\n${evidence}\nQuestion: $question",
        answer=create_model("HeadFields", __base__=HeadFields, supporting=supporting),
        max_tokens=260,  # also where each character is a token, as in numbers
        attempts=attempts,
    )


VERIFY = Prompt(
    name="verify",
    system=(
        "You check an answer against its evidence. Reply in JSON. contradiction: true only if two pieces of "
        "evidence state different things about what is asked, or one plainly says other than the answer. settle: "
        "what would have to be looked up to settle it, a few words; empty if there is none."
    ),
    user="Evidence:\n${evidence}\nQuestion: $question\nAnswer: $answer",
    answer=VerdictFields,
    max_tokens=100,
    attempts=1,
)


async def ask_head(question: str, package: Package, ctx: Context) -> HeadFields | None:
    """The head's answer; None where the budget holds no call with any of the evidence in it.

    A broken answer is asked for again only where the budget surely holds that too. Raises `CallError`.
    """
    left = ctx.left()
    lines = shortened(package.lines, ctx.room(head_prompt(1), left.tokens) - len(question))
    if not lines or left.calls < 1:
        return None
    evidence = numbered(lines)
    tokens = 2 * ctx.attempts * (TOKENS + len(evidence))
    attempts = 1 if left.tokens < tokens or min(left.calls, left.steps) < ctx.attempts else None
    return await ctx.generate(head_prompt(len(lines), attempts), evidence=evidence, question=question)


def shortened(lines: Sequence[str], room: int) -> list[str]:
    """As many of the lines as `room` characters hold; the longest are cut, all to one length."""
    kept = list(lines[: max(room // (_SHORTEST + _FRAME), 0)])
    longest, spare = 0, room
    for left, length in zip(range(len(kept), 0, -1), sorted(map(len, kept)), strict=True):
        each = spare // left - _FRAME  # what short lines leave is for the long ones
        longest = min(length, each)
        if each < length:
            break
        spare -= length + _FRAME
    return [text if len(text) <= longest else f"{text[: longest - 1]}…" for text in kept]


def numbered(lines: Sequence[str]) -> str:
    """The lines with their labels."""
    return "".join(f"[{label}] {text}\n" for label, text in enumerate(lines, start=1))
