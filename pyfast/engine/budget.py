"""The limits of questions, runs, prompts and answers. Prompt and answer limits that the budget does not set depend
on the model's context window."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pyfast.errors import InputError, RunError, first_fault
from pyfast.utils.text_forms import counted

OF_RUN = ("run_tokens", "run_seconds")
"""The names of the limits of a whole run"""


class Budget(BaseModel):
    """The limits of a run and its questions.

    None means no limit, unless the field says otherwise. A question that needs more `calls`, `tokens`, `steps` or
    `seconds` than allowed fails. A run that reaches a limit stops, and can be resumed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    calls: int | None = Field(default=None, ge=1)
    """The maximum number of LLM calls per question"""
    tokens: int | None = Field(default=None, ge=1)
    """The maximum number of tokens per question, prompts plus completions. Cached tokens count too. A call in
    progress is not cut off when the limit is reached
    """
    steps: int | None = Field(default=None, ge=1)
    """The maximum number of steps (LLM calls, searches and other batched work) per question"""
    attempts: int = Field(default=3, ge=1, le=20)
    """The maximum number of times that pyfast asks the LLM for one answer. It asks again after a malformed
    answer"""
    passages: int | None = Field(default=None, ge=1)
    """The maximum number of passages in a prompt. None: the maximum depends on the context window
    (`profile_of`)"""
    answer_tokens: int | None = Field(default=None, ge=16)
    """The maximum number of tokens in a final answer. None: the limit of the system's prompt"""
    strict: bool = False
    """Whether a question fails if the LLM returns no usable answer. False: the system falls back to a simpler step
    """
    call_seconds: float | None = Field(default=None, gt=0)
    """The maximum number of seconds per LLM call, from the moment it is sent. The LLM's own timeout may be shorter
    """
    seconds: float | None = Field(default=None, gt=0)
    """The maximum number of seconds per question, from its start"""
    run_tokens: int | None = Field(default=None, ge=1)
    """The maximum number of tokens in the run, over all sessions. The limit is checked before each question
    starts, and questions in progress still finish, so a run can exceed it by the tokens of all questions in
    progress"""
    run_seconds: float | None = Field(default=None, gt=0)
    """The maximum number of seconds per session of the run"""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Budget:
        """Read limits from strings.

        `given` maps limit names to strings. Limits that are not given keep their defaults. Raises `InputError` if
        a limit cannot be read.
        """
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            name, fault = first_fault(error)
            if name not in cls.model_fields:
                fault = f"unknown limit; known limits: {', '.join(cls.model_fields)}"
            raise InputError(f"budget {name}: {fault}") from None

    def shaping(self) -> dict[str, Any]:
        """Return the limits that affect answers, with which a run can only be resumed unchanged."""
        names = {"calls", "tokens", "steps", "attempts", "passages", "answer_tokens"}
        limits = self.model_dump(include=names, exclude_none=True)
        return {**limits, "strict": True} if self.strict else limits


@dataclass(frozen=True, slots=True)
class Remaining:
    """The calls, tokens and steps that a question may still use.

    Seconds are not included, because a resumed run could not repeat decisions that depend on time.
    """

    calls: float = math.inf
    tokens: float = math.inf
    steps: float = math.inf

    def without(self, calls: int, tokens: int, steps: int) -> Remaining:
        """Return what remains after these calls, tokens and steps."""
        return Remaining(self.calls - calls, self.tokens - tokens, self.steps - steps)


@dataclass(frozen=True, slots=True)
class Profile:
    """The prompt limits that follow from the size of a model's context window.

    Example:
        >>> from pyfast.engine.budget import profile_of
        >>> print(profile_of(2048))
        profile small (a context window of 2,048 tokens): at most 25 passages in a prompt
    """

    name: str
    window: int
    passages: int
    """The maximum number of passages in a prompt"""
    answer_tokens: int | None = None
    """The maximum number of tokens in an answer. None: the limit of its prompt"""

    def __str__(self) -> str:
        """Return the limits as a one-line string."""
        answers = "" if self.answer_tokens is None else f", {self.answer_tokens:,} tokens in an answer"
        window = f"a context window of {self.window:,} tokens"
        return f"profile {self.name} ({window}): at most {self.passages:,} passages in a prompt{answers}"


# (largest window, name, passages). Longer lists are cut to the window. Many short rows fit into it.
_PROFILES = ((4_096, "small", 25), (32_768, "medium", 50))
_LARGE = ("large", 10_000)


def profile_of(window: int, budget: Budget | None = None) -> Profile:
    """Compute the limits for a context window of `window` tokens. Limits in the budget take precedence."""
    budget = budget or Budget()
    name, passages = next(((name, most) for largest, name, most in _PROFILES if window <= largest), _LARGE)
    return Profile(name, window, passages if budget.passages is None else budget.passages, budget.answer_tokens)


def tokens_spent(used: int, budget: Budget) -> RunError:
    """Return the error of a run that has used its tokens."""
    limit = counted(budget.run_tokens or 0, "token")
    error = RunError(
        f"the run has reached its limit of {limit} ({used} used; questions in progress have finished)"
    )
    error.resumed_by = "the same command with a larger run_tokens"
    return error


_FOREVER = nullcontext()


def within(seconds: float | None) -> AbstractAsyncContextManager[Any]:
    """Return a context manager that raises `TimeoutError` if its `with` block takes more than `seconds`
    seconds.

    If `seconds` is None, it does nothing, and does it faster than `asyncio.timeout(None)`.
    """
    return _FOREVER if seconds is None else asyncio.timeout(seconds)
