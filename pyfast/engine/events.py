"""The events of a run, and the steps of its questions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pyfast.engine.outages import Waiting
from pyfast.engine.questions import log_limited
from pyfast.engine.record import Record


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened in a run."""

    kind: Literal["starting", "started", "answered", "waiting", "answering", "progress"]
    """What happened. `starting`: the LLM is being loaded or probed. `started`: pyfast begins to answer questions.
    `answered`: one more question has its record. `waiting`: the LLM does not answer, and the run waits.
    `answering`: the LLM answers again. `progress`: workers of a cluster have answered more questions, or rules
    have read more documents for a knowledge graph, at first none; this event occurs about once a second, without
    records
    """
    done: int
    """How many questions have their records, over all sessions"""
    total: int
    record: Record | None = None
    """For `answered`: the record"""
    failed: int = 0
    """For `started`: how many of the questions with records failed"""
    waiting: Waiting | None = None
    """For `waiting`: when the outage started, and why"""


OnEvent = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Step:
    """One LLM call or batched function call of a question. Each step is reported twice, at its start and at its
    end."""

    question: str
    """The id of the question"""
    name: str
    """The name of the prompt or of the function"""
    role: str = ""
    """The role of the prompt. Empty if the step calls no LLM"""
    asked: str = ""
    """The input of a function, if it is text, such as the queries of a retrieval"""
    seconds: float | None = None
    """How many seconds the step took. None: the step has just started"""
    reply: str = ""
    """The LLM's reply"""
    passages: int | None = None
    """How many passages a search found. None: the step is not a search, or it has just started"""
    error: str = ""
    """Why the step failed. Empty: it did not fail"""
    fell_back: str = ""
    """Why the system continues without a usable reply to the prompt `name`. Such a step is not a call, and is
    reported only once. Empty: the step is a call
    """
    prompt_tokens: int = 0
    """The prompt's tokens, if the step is a finished LLM call; otherwise 0"""
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
    """A function that pyfast calls with each `Step`. A step is one call that a question makes, to the model or to
    a batched function such as a search. `on_step` is called twice per step, when the step begins and when it ends,
    and once, with `fell_back`, if the system continues without a usable reply. None: no steps are reported"""
    stop: threading.Event | None = None
    """Once you set this event, no new question starts. Questions in progress finish, and you can resume the run"""
    on_limited: Callable[[int, int], None] = log_limited
    """A function that pyfast calls if questions search only the documents that they name, with the number of these
    questions and of all questions. By default, pyfast logs the numbers"""


UNWATCHED = Watch()
