"""Spread work over the workers of a Ray cluster: the questions of `pyfast.answer`, and the extraction of a
knowledge graph."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pyfast.api.answering import ManyQuestions, begin, carry_out, job_of
from pyfast.api.blocking import blocking_loop, run_blocking
from pyfast.api.indexing import open_index
from pyfast.api.models import GivenLLM, OpenedModels, opened
from pyfast.api.run import Run
from pyfast.distributed import Cluster, work_on_blocks
from pyfast.distributed.blocks import QUESTIONS
from pyfast.engine import Configuration, Job, OnEvent, Summary, questions_from, questions_in, read_prompts
from pyfast.errors import InputError
from pyfast.llm import by_role
from pyfast.retrieval import Index
from pyfast.retrieval.pools import RERANK_SCORES

Opens = Callable[[], tuple[Job, OpenedModels]]
_OF_RUN = ("run_tokens", "run_seconds")
"""The names of the limits that hold for a whole run. The process that starts the workers checks these limits.
The workers do not get them"""


def answer_by_workers(
    questions: ManyQuestions,
    given: Mapping[str, Any],
    of_run: Mapping[str, Any],
    cluster: Cluster,
    on_event: OnEvent,
    stop: threading.Event,
) -> Run:
    """Let the workers of a cluster answer questions, and return the run. If the run's folder exists, the run
    resumes.

    Args:
        questions: As in `answer`.
        given: The arguments of `answer` that each worker needs too.
        of_run: The other arguments of `answer`, which only the process that starts the workers needs.
        cluster: The Ray cluster, with the number and resources of its workers.
        on_event: A function that is called with each event.
        stop: After this event is set, no new question starts.

    Raises:
        InputError: An argument is not valid, or cannot be sent to another process.
    """
    if of_run["run"] is None:
        raise InputError("ray needs the folder of a run, on a file system that all machines share")
    handed = _handed(given)
    job, _ = job_of(questions, **given, **of_run, by_workers=True)
    if job.settings.get("shared_updates"):
        raise InputError("shared_updates: cannot be used with ray: a worker does not see what others learn")
    assert job.folder is not None
    return run_by_workers(job, partial(_joined, str(job.folder.resolve()), handed), cluster, on_event, stop)


def extract_by_workers(
    job: Job,
    llm: GivenLLM,
    llm_options: Mapping[str, Any] | None,
    cluster: Cluster,
    on_event: OnEvent,
    stop: threading.Event,
) -> Run:
    """Let the workers of a cluster extract a knowledge graph, and return the run of the extraction. If the
    extraction has started before, it resumes.

    `job` describes the run of the extraction. `llm` and `llm_options` are as in `build_knowledge`, and the
    other arguments as in `answer_by_workers`.

    Raises `InputError` if the LLM cannot be sent to another process.
    """
    _check_named(llm)
    limits = job.budget.model_copy(update=dict.fromkeys(_OF_RUN))
    bare = replace(job, llm={}, questions=questions_from(["-"]), budget=limits, failures=None)
    return run_by_workers(job, partial(_with_llm, bare, llm, llm_options), cluster, on_event, stop)


def run_by_workers(job: Job, opens: Opens, cluster: Cluster, on_event: OnEvent, stop: threading.Event) -> Run:
    """Let the workers of a cluster carry out the run that `job` describes, and return the run. Each worker
    calls `opens` to open its own index and models."""
    session = work_on_blocks(job, partial(Answering, opens), cluster, on_event, stop)
    return Run.finished(job.folder, job.questions.count, session, [])


def _joined(run: str, given: Mapping[str, Any]) -> tuple[Job, OpenedModels]:
    """Make the `Job` of a run in a worker, and open its models. `run` is the folder of the whole run, and
    `given` has the arguments of `pyfast.answer`."""
    index = None if given["index"] is None else open_index(*given["index"])
    return job_of(["-"], **{**given, "index": index}, run=run, joins=True)


def _with_llm(job: Job, llm: GivenLLM, llm_options: Mapping[str, Any] | None) -> tuple[Job, OpenedModels]:
    """Open the LLM of an extraction in a worker. Returns the `Job` with this LLM, and the opened models."""
    used = opened(llm, llm_options)
    return replace(job, llm=used.full()), used


def _check_named(given: GivenLLM) -> None:
    """Raise `InputError` if an LLM cannot be used by workers. A worker cannot open an LLM that is given as an
    object. If an LLM is behind a Batch API, only one process can collect the calls of a run."""
    for role, llm in by_role(given).items():  # type: ignore[arg-type]
        if not isinstance(llm, str):
            raise InputError(f"llm {role}: with ray, give the text that names it: each worker opens its own")
        if llm.startswith("batch:"):
            raise InputError("batch: cannot be used with ray: one process must collect the calls of a run")


def _handed(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments in a form that can be sent to another process, with absolute paths. Raises
    `InputError` if the LLM or the system is given as an object, because an object cannot be sent."""
    handed = dict(given)
    _check_named(given["llm"])
    if not isinstance(given["system"], str):
        raise InputError("system: with ray, give its name or MODULE:NAME: each worker loads its own")
    index = given["index"]
    if isinstance(index, Index):
        handed["index"] = str(index.folder.resolve()), *index.opened_with
    elif index is not None:
        handed["index"] = str(Path(index).resolve()), "bm25", "off", []
    if isinstance(given["prompts"], str | Path):
        handed["prompts"] = read_prompts(Path(given["prompts"]))
    if given["response_cache"] is not None:
        handed["response_cache"] = str(Path(given["response_cache"]).resolve())
    handed["budget"] = {name: value for name, value in (given["budget"] or {}).items() if name not in _OF_RUN}
    return handed


@dataclass(slots=True)
class Answering:
    """The work of one worker process: answer blocks of questions, one block after the other."""

    opens: Opens
    job: Job | None = None
    models: OpenedModels | None = None

    def start(self) -> Configuration:
        """Open the run's index and system, and load the run's models. Return the configuration of the run."""
        if self.job is None or self.models is None:
            self.job, used = self.opens()
            self.models = OpenedModels(used.by_role, frozenset(used.by_role))
        run_blocking(_loaded(self.models))
        return self.job.describe()

    def answer(self, block: Path, on_event: OnEvent, stop: threading.Event) -> Summary:
        """Answer the questions in the folder `block`. Return the counts of the questions that this call has
        answered."""
        assert self.job is not None and self.models is not None
        index = None if self.job.index is None else self.job.index.keeping_scores(block / RERANK_SCORES)
        job = replace(self.job, folder=block, questions=questions_in(block / QUESTIONS), index=index)
        begin(job)
        session = carry_out(job, self.models, on_event=on_event, stop=stop).session
        assert session is not None
        return session

    def concurrency(self) -> int:
        """Return how many questions of a block are in progress at once."""
        assert self.job is not None
        return self.job.concurrency

    def turn(self) -> Future[None]:
        """Return a future that ends as soon as the event loop has time. If the future does not end, the event
        loop is blocked."""
        return asyncio.run_coroutine_threadsafe(asyncio.sleep(0), blocking_loop())


async def _loaded(models: OpenedModels) -> None:
    async with models.started():
        pass
