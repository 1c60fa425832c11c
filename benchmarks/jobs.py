"""Runs of benchmarks, made as `pyfast.answer` makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from pyfast.api.models import started
from pyfast.engine import Ask, Budget, Job, Question, Questions, Summary, work_on
from pyfast.llm import FullLLM
from pyfast.retrieval import Index
from pyfast.systems import System
from pyfast.utils.options import RunOptions


def job(
    system: System,
    given: dict[str, str],
    ask: Ask | None,
    llm: FullLLM,
    index: Index,
    questions: Callable[[], Iterator[Question]],
    count: int,
    folder: Path,
    concurrency: int,
    budget: Budget,
) -> Job:
    """`count` questions for a system with the settings `given`; `ask` in its place, if that is not None."""
    settings = system.configure(given)
    return Job(
        folder=folder,
        questions=Questions(questions, count, "of a benchmark"),
        system=system.name,
        ask=ask or system.ask(settings),
        settings=settings.model_dump(mode="json"),
        prompts=system.prompts,
        index=index,
        llm=llm,
        concurrency=concurrency,
        budget=budget,
        options=RunOptions(keep_prompts=False),
    )


async def work(wanted: Job) -> Summary:
    """Start the model, do the job, close the model."""
    async with started(wanted.llm):
        return (await work_on(wanted)).summary
