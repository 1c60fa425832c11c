"""The head of HSEQ: an LLM that answers from the evidence package alone. A verifier can then look for a
contradiction; if it finds one, the policy selects more evidence, and the head answers again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel, Field, create_model

from pyfast.engine import Context, Prompt, Remaining
from pyfast.systems.hseq.evidence_package import EvidencePackage
from pyfast.systems.prompts import INSUFFICIENT, longest_list, unless_known
from pyfast.utils.token_budget import CHARACTERS_PER_TOKEN_OF_LISTS, cut_evenly

TOKENS = 1000
"""The minimum number of tokens for a call to the head: room for instructions, answer, and a few short lines of
evidence"""
_MOST_SUPPORTING = 8
_SHORT = 200
"""The maximum number of characters in an answer that is not a list"""
FRAME = 6  # characters in a line, besides its text


class HeadFields(BaseModel):
    """The answer, and the numbers of its evidence."""

    answer: str
    supporting: list[int] = []


class VerdictFields(BaseModel):
    """Whether the evidence contradicts itself or the answer."""

    contradiction: bool
    settle: str = Field(default="", max_length=120)


@cache  # An LLM compiles a schema once for each schema object.
def head_prompt(items: int, characters: int = _SHORT) -> Prompt[HeadFields]:
    """Make the head's prompt for evidence items labelled 1 to `items`. The head can cite only these labels.

    The answer has at most `characters` characters.
    """
    labels: Any = Literal[tuple(range(1, items + 1))]
    supporting: Any = (list[labels], Field(default=[], max_length=min(items, _MOST_SUPPORTING)))
    return Prompt(
        name="head",
        system=(
            "Answer the question only from the numbered evidence. Reply in JSON. answer: only the name, number, "
            "short phrase, yes or no that the question asks for, not a sentence. If there are several answers, "
            "give all of them, separated by semicolons. If the evidence does not contain the answer, "
            f"the answer is '{INSUFFICIENT}'. supporting: the numbers of the evidence that supports the answer, "
            f"at most {_MOST_SUPPORTING}."
        ),
        user=f"Evidence:\n${{evidence}}\nQuestion: $question\nUse at most {characters} characters for the answer.",
        answer=create_model(
            "HeadFields", __base__=HeadFields, answer=(str, Field(max_length=characters)), supporting=supporting
        ),
        # The limit of a short reply is enough even if each character is a token, as in numbers.
        max_tokens=260 + math.ceil((characters - _SHORT) / CHARACTERS_PER_TOKEN_OF_LISTS),
        role="answer",
    )


VERIFY = Prompt(
    name="verify",
    system=(
        "Check an answer against its evidence. Reply in JSON. contradiction: true only if two items of the "
        "evidence contradict each other about the question, or one item clearly contradicts the answer. settle: "
        "what to look up to settle the contradiction, at most 120 characters; empty if there is none."
    ),
    user="Evidence:\n${evidence}\nQuestion: $question\nAnswer: $answer",
    answer=VerdictFields,
    max_tokens=100,
    role="judge",
)


async def ask_head(question: str, package: EvidencePackage, ctx: Context, abstain: bool) -> HeadFields | None:
    """Ask the head for the answer. Returns None if the budget is too small for a call with evidence.

    If `abstain` is True, the head may say that the evidence contains no answer. If a reply is malformed, the
    function asks again, but only if the budget certainly allows another call. Raises `CallError` if the call
    fails, and `AnswerError` if no reply is well-formed.
    """
    left = ctx.remaining()
    graph = (line for line, item in zip(package.lines, package.items, strict=True) if item["source_type"] == "kg")
    window = min(ctx.context_window_of("answer"), left.tokens)
    characters = longest_list(sum(map(len, graph)), window, _SHORT)
    budget = ctx.text_budget(head_prompt(1, characters), left.tokens) - len(question)
    lines = cut_evenly(package.lines, budget, FRAME)
    if not lines or left.calls < 1:
        return None
    evidence = numbered(lines)
    prompt = unless_known(head_prompt(len(lines), characters), abstain)
    prompt = prompt.tried(affordable(ctx, left, len(evidence)))
    return await ctx.generate(prompt, evidence=evidence, question=question)


def affordable(ctx: Context, left: Remaining, characters: int) -> int | None:
    """Return how many attempts the budget allows for a prompt with `characters` characters of text. `left` is
    the remaining budget.

    None: the budget certainly allows the usual number of attempts. 1: the budget may be too small for a
    second attempt.
    """
    tokens = 2 * ctx.attempts * (TOKENS + characters)
    return 1 if left.tokens < tokens or min(left.calls, left.steps) < ctx.attempts else None


def numbered(lines: Sequence[str]) -> str:
    """Write lines with labels: `[1]` before the first line, and so on."""
    return "".join(f"[{label}] {text}\n" for label, text in enumerate(lines, start=1))
