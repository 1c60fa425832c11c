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

from pyfast.api.index import open_index
from pyfast.api.jobs import AnswerArguments, ManyQuestions, begin, carry_out, job_of
from pyfast.api.models import GivenLLM, OpenedModels, opened
from pyfast.api.run import Run
from pyfast.engine import Configuration, Job, OnEvent, Summary, Watch, questions_from, questions_in, read_prompts
from pyfast.engine.budget import OF_RUN
from pyfast.engine.distributed import work_on_blocks
from pyfast.engine.events import UNWATCHED
from pyfast.engine.run_folder import QUESTIONS
from pyfast.errors import InputError
from pyfast.llm import by_role
from pyfast.retrieval import Index
from pyfast.retrieval.pools import RERANK_SCORES
from pyfast.utils.event_loop import blocking_loop, run_blocking
from pyfast.utils.options import Cluster

Opens = Callable[[], tuple[Job, OpenedModels]]


def answer_by_workers(
    questions: ManyQuestions, given: AnswerArguments, cluster: Cluster, watch: Watch = UNWATCHED
) -> Run:
    """Let the workers of a cluster answer questions, and return the run. If the run's folder exists, the run
    resumes. The arguments are as in `answer`.

    Raises `InputError` if an argument is not valid, or cannot be sent to another process.
    """
    if watch.on_step is not None:
        raise InputError("on_step: cannot be used with ray, because the steps happen in other processes")
    if given.run is None:
        raise InputError("run: with ray, give a folder on a file system that all machines share")
    opens = partial(_joined, _index_of(given.index), _handed(given))
    job, _ = job_of(questions, given, by_workers=True)
    if job.settings.get("shared_updates"):
        raise InputError("shared_updates: cannot be used with ray, because workers do not see what others learn")
    return run_by_workers(job, opens, cluster, watch)


def extract_by_workers(
    job: Job, llm: GivenLLM, llm_options: Mapping[str, Any] | None, cluster: Cluster, watch: Watch = UNWATCHED
) -> Run:
    """Let the workers of a cluster extract a knowledge graph, and return the extraction's run. If the extraction
    was started before, it resumes.

    `job` describes the run of the extraction. The other arguments are as in `build_knowledge`.

    Raises `InputError` if the LLM cannot be sent to another process.
    """
    _check_named(llm)
    limits = job.budget.model_copy(update=dict.fromkeys(OF_RUN))
    bare = replace(job, llm={}, questions=questions_from(["-"]), budget=limits, failures=None)
    return run_by_workers(job, partial(_with_llm, bare, llm, llm_options), cluster, watch)


def run_by_workers(job: Job, opens: Opens, cluster: Cluster, watch: Watch = UNWATCHED) -> Run:
    """Let the workers of a cluster carry out the run that `job` describes, and return it. Each worker calls
    `opens` to open its own index and models."""
    session = work_on_blocks(job, partial(Answering, opens), cluster, watch)
    return Run.finished(job.folder, job.questions, session, [])


def _joined(index: tuple[Any, ...] | None, given: AnswerArguments) -> tuple[Job, OpenedModels]:
    """Create a run's `Job` in a worker, and open its models. `index` holds the arguments of `open_index`."""
    given = replace(given, index=None if index is None else open_index(*index))
    return job_of(["-"], given, joins=True)


def _with_llm(job: Job, llm: GivenLLM, llm_options: Mapping[str, Any] | None) -> tuple[Job, OpenedModels]:
    """Open the LLM of an extraction in a worker. Returns the `Job` with this LLM, and the opened models."""
    used = opened(llm, llm_options)
    return replace(job, llm=used.full()), used


def _check_named(given: GivenLLM) -> None:
    """Raise `InputError` if workers cannot use an LLM: one passed as an object, which a worker cannot open, or one
    behind a Batch API, for which a single process must collect a run's calls."""
    for role, llm in by_role(given).items():  # type: ignore[arg-type]
        if not isinstance(llm, str):
            raise InputError(
                f"llm {role}: with ray, name the model, as in vllm:MODEL, so that workers can open it"
            )
        if llm.startswith("batch:"):
            raise InputError(
                "llm: `batch:` cannot be used with ray, because one process must collect a run's calls"
            )


def _handed(given: AnswerArguments) -> AnswerArguments:
    """Return the arguments that each worker needs, with absolute paths, in a form that can be sent to another
    process. Raises `InputError` if the LLM or the system is given as an object, which cannot be sent."""
    _check_named(given.llm)
    if not isinstance(given.system, str):
        raise InputError("system: with ray, pass a name or MODULE:NAME, because each worker loads it")
    assert given.run is not None
    prompts = given.options.prompts
    of_workers = replace(
        given.options,
        prompts=None,
        reuse=[str(run.resolve()) for run in given.options.reused],
        sample=None,
        documents="own",
        max_failures=None,
        restart=False,
    )
    return replace(
        given,
        index=None,
        run=str(Path(given.run).resolve()),
        limit=None,
        budget={name: value for name, value in (given.budget or {}).items() if name not in OF_RUN},
        options=of_workers,
        replaced=None if prompts is None else read_prompts(Path(prompts)),
    )


def _index_of(index: Index | str | Path | None) -> tuple[Any, ...] | None:
    """Return the arguments with which a worker opens the index."""
    if isinstance(index, Index):
        return str(index.folder.resolve()), *index.opened_with
    return None if index is None else (str(Path(index).resolve()), "bm25", "off", [])


@dataclass(slots=True)
class Answering:
    """The work of one worker process: to answer blocks of questions, one after the other."""

    opens: Opens
    job: Job | None = None
    models: OpenedModels | None = None

    def start(self) -> Configuration:
        """Open the run's index and system, load its models, and return its configuration."""
        if self.job is None or self.models is None:
            self.job, used = self.opens()
            self.models = OpenedModels(used.by_role, frozenset(used.by_role))
        run_blocking(_loaded(self.models))
        return self.job.describe()

    def answer(self, block: Path, on_event: OnEvent, stop: threading.Event) -> Summary:
        """Answer the questions in the folder `block`, and return the counts of those that this call has
        answered."""
        assert self.job is not None and self.models is not None
        index = None if self.job.index is None else self.job.index.keeping_scores(block / RERANK_SCORES)
        job = replace(self.job, folder=block, questions=questions_in(block / QUESTIONS), index=index)
        begin(job)
        session = carry_out(job, self.models, Watch(on_event, stop=stop)).session
        assert session is not None
        return session

    def concurrency(self) -> int:
        """Return how many questions of a block may be in progress at once."""
        assert self.job is not None
        return self.job.concurrency

    def turn(self) -> Future[None]:
        """Return a future that ends as soon as the event loop has time. If the future does not end, the event
        loop is blocked."""
        return asyncio.run_coroutine_threadsafe(asyncio.sleep(0), blocking_loop())


async def _loaded(models: OpenedModels) -> None:
    async with models.started():
        pass
