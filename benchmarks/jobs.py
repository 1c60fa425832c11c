"""Runs of benchmarks, made as `pyfast answer` makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from pyfast.engine import Ask, Budget, Job, Question, configuration
from pyfast.llm import Backend
from pyfast.retrieval import Index
from pyfast.systems import System


def job(
    system: System,
    given: dict[str, str],
    ask: Ask | None,
    llm: Backend,
    index: Index,
    questions: Callable[[], Iterator[Question]],
    count: int,
    folder: Path,
    concurrency: int,
    budget: Budget,
) -> Job:
    """`count` questions for a system with the settings `given`; `ask` in its place, if that is not None."""
    settings = system.configure(given)
    describe = partial(
        configuration,
        system=system.name,
        settings=settings.model_dump(mode="json"),
        prompts=system.prompts,
        llm=llm,
        index=index,
        budget=budget.shaping(),
        questions={"count": count},
        places={},
    )
    return Job(
        folder=folder,
        questions=questions,
        ask=ask or system.ask(settings),
        index=index,
        llm=llm,
        describe=describe,
        concurrency=concurrency,
        budget=budget,
    )
