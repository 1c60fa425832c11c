"""The events of a run, and the steps of its questions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pyfast.engine.outages import Waiting
from pyfast.engine.record import Record


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened in a run."""

    kind: Literal["starting", "started", "answered", "waiting", "answering", "progress"]
    """What happened. `starting`: the LLM is loaded or probed. `started`: pyfast starts to answer questions.
    `answered`: one more question has its record. `waiting`: the LLM does not answer, and the run waits.
    `answering`: the LLM answers again. `progress`: workers of a cluster have answered more questions, or rules
    have read more documents for a knowledge graph. This event comes about once a second and has no records
    """
    done: int
    """How many questions have their records, in all sessions together"""
    total: int
    record: Record | None = None
    """For `answered`: the record"""
    failed: int = 0
    """For `started`: how many of those that have their records failed"""
    waiting: Waiting | None = None
    """For `waiting`: when the outage started, and its reason"""


OnEvent = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Step:
    """One LLM call or batched function call of a question. pyfast reports each step twice: at its start and at
    its end."""

    question: str
    """The id of the question"""
    name: str
    """The name of the prompt or of the function"""
    role: str = ""
    """The role of the prompt. Empty if the step calls no LLM"""
    asked: str = ""
    """The input of a function, if it is text: for example, the queries of a retrieval"""
    seconds: float | None = None
    """How many seconds the step took. None: the step has just started"""
    reply: str = ""
    """The LLM's reply"""
    passages: int | None = None
    """How many passages a search found. None: the step is not a search, or it has just started"""
    error: str = ""
    """Why the step failed. Empty: it did not fail"""
    fell_back: str = ""
    """Why the system continues without a usable reply to the prompt `name`. A step with such a reason is not
    a call, and is reported only once. Empty: the step is a call
    """
    prompt_tokens: int = 0
    """The tokens of the prompt, if the step is an LLM call that has ended. Otherwise 0"""
    cached_tokens: int = 0
    """How many tokens of the prompt the LLM took from its prefix cache"""
    completion_tokens: int = 0


OnStep = Callable[[Step], None]


def ignore(event: Event) -> None:
    """Do nothing with the event."""


@dataclass(frozen=True, slots=True)
class Watch:
    """How a program follows a run, and stops it. pyfast calls the functions from another thread."""

    on_event: OnEvent = ignore
    """A function that pyfast calls with each `Event`. The function must return quickly"""
    on_step: OnStep | None = None
    """A function that pyfast calls with each `Step`. A step is one call that a question makes: to the model, or to
    a batched function such as a search. pyfast calls `on_step` twice for each step: when the step begins and when
    it ends, and once, with `fell_back`, if the system continues without a usable reply. None: no steps are
    reported"""
    stop: threading.Event | None = None
    """After you set this event, no new question starts. Questions in progress finish, and you can resume the
    run"""


UNWATCHED = Watch()
