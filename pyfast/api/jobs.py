"""The job of a run: create it from the arguments of `pyfast.answer`, and carry it out in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pyfast.api.configured_system import configure, reads_history
from pyfast.api.models import GivenLLM, OpenedModels, opened
from pyfast.api.run import Run
from pyfast.engine import (
    Budget,
    Event,
    Job,
    PromptOverrides,
    Question,
    Questions,
    SessionResult,
    Watch,
    questions_from,
    questions_in,
    set_aside,
    work_on,
)
from pyfast.engine.configuration import COLUMNS
from pyfast.engine.events import UNWATCHED
from pyfast.engine.question_files import as_path, rows_of_table
from pyfast.engine.questions import sampled, unrestricted
from pyfast.engine.run_folder import BLOCKS, QUESTIONS
from pyfast.errors import InputError
from pyfast.llm import FullLLM, Role
from pyfast.llm.protocol import check_roles, collecting
from pyfast.retrieval import Index
from pyfast.retrieval.pools import RERANK_SCORES
from pyfast.systems import System
from pyfast.utils.event_loop import run_blocking
from pyfast.utils.log import LOG
from pyfast.utils.options import GREEDY, RUN_DEFAULTS, RunOptions, Sampling, at_least_one
from pyfast.utils.text_forms import counted

QuestionLike = str | Mapping[str, Any] | Question
ManyQuestions = Iterable[QuestionLike] | AsyncIterable[QuestionLike] | str | Path
_LOOK_S = 0.05  # seconds between two checks of a caller's `stop`


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerArguments:
    """The arguments of `pyfast.answer` that define its `Job`, except the questions."""

    index: Index | str | Path | None
    llm: GivenLLM
    llm_options: Mapping[str, Any] | None = None
    system: str | System
    settings: Mapping[str, Any] | None
    run: str | Path | None
    limit: int | None = None
    concurrency: int | None
    budget: Mapping[str, Any] | None
    sampling: Sampling = GREEDY
    options: RunOptions = RUN_DEFAULTS
    replaced: PromptOverrides | None = None
    """The content of `options.prompts`, if it has been read already"""

    def __post_init__(self) -> None:
        """Raise `InputError` if `options` is not a `RunOptions` object."""
        RunOptions.require(self.options)


def job_of(
    questions: ManyQuestions, given: AnswerArguments, *, by_workers: bool = False, joins: bool = False
) -> tuple[Job, OpenedModels]:
    """Create the `Job` that `answer` carries out, and open its models.

    If the run has a folder, it is checked, unless `joins` says that another process has started the run.
    `by_workers`: accept the folder of a run started by the workers of a cluster, which is otherwise an error.
    Raises `InputError` if an argument is not valid, or if the folder contains a run with other arguments.
    """
    # Check all arguments before anything is created.
    options, limit = given.options, given.limit
    folder = None if given.run is None else Path(given.run)
    begun = None if options.restart else folder
    prompts = given.replaced or options.prompts
    configured = configure(given.system, given.settings, given.index, prompts, options.follow_ups, begun)
    limits = Budget.parse(given.budget or {})
    limits = limits.model_copy(update={"strict": True}) if options.strict else limits
    asked = read_in(questions, limit if limit is None else at_least_one("limit", limit), options.columns)
    asked = unrestricted(asked) if options.documents == "all" else asked
    asked, gold = (asked, "") if options.sample is None else (sampled(asked, options.sample), asked.place)
    kept = folder and folder / QUESTIONS
    is_kept = kept is not None and bool(asked.place) and Path(asked.place).resolve() == kept.resolve()
    if not asked.place and kept is not None:
        asked = replace(asked, place=str(kept))
    if asked.later and not joins and options.follow_ups == "off" and not reads_history(configured.system):
        told = "%s answers %s as the user wrote them, without the earlier turns; see the option follow_ups"
        LOG.warning(told, configured.system.name, counted(asked.later, "later turn"))
    failures = allowed_failures(options.max_failures, asked.count)
    if folder is None and (options.restart or options.retry_failed or options.ask_once or options.reuse):
        raise InputError("restart, retry_failed, ask_once and reuse need the folder of a run")
    used = opened(given.llm, given.llm_options)
    check_roles(configured.system.name, configured.roles, used.by_role)
    models = used.full()
    if folder is not None:
        # A model without a fingerprint is refused here, before an old run is renamed.
        _ = [model.fingerprint for model in models.values()]
    session = configured.open(begun)
    place = "" if configured.index is None else str(configured.index.folder)
    job = Job(
        folder=folder,
        questions=asked,
        system=configured.system.name,
        system_code=configured.system.code,
        ask=configured.ask(session),
        settings=configured.described(),
        prompts=configured.prompts,
        replaced=configured.replaced,
        index=configured.index,
        llm=models,
        knowledge=None if session is None else session.describe(),
        places={
            "index": place,
            **({"gold": gold} if gold else {}),
            **({COLUMNS: json.dumps(dict(options.columns))} if options.columns else {}),
        },
        sampling=given.sampling,
        concurrency=at_once(given.concurrency, models),
        budget=limits,
        failures=failures,
        options=options,
        keeps_questions=not (joins or is_kept),
    )
    if folder is not None and not joins:
        begin(job, by_workers)
        if job.index is not None:
            job = replace(job, index=job.index.keeping_scores(folder / RERANK_SCORES))
        if session is not None:
            session = session.kept(folder)
            resumes = configured.system.resumes
            job = replace(
                job,
                ask=configured.ask(session),
                resumed=None if resumes is None else partial(resumes, session, configured.settings),
            )
    return job, used


def read_in(questions: ManyQuestions, limit: int | None, columns: Mapping[str, str] | None = None) -> Questions:
    """Read and check the first `limit` questions (None: all). Raises `InputError` if a question is not valid.
    `columns` is as in `questions_in`."""
    if isinstance(questions, str):
        questions = as_path(questions) or [questions]
    if isinstance(questions, Path):
        return questions_in(questions, limit, columns or {})
    if columns:
        raise InputError("columns: can only be used with a question file")
    if isinstance(questions, AsyncIterable):
        questions = run_blocking(_collected(questions, limit))
    return questions_from(rows_of_table(questions), limit)


async def _collected(questions: AsyncIterable[QuestionLike], limit: int | None) -> list[QuestionLike]:
    collected: list[QuestionLike] = []
    async for question in questions:
        collected.append(question)
        if len(collected) == limit:
            break
    return collected


def begin(job: Job, by_workers: bool = False) -> None:
    """Check that the run's folder is new, or that its run has the same configuration as `job`. Raises `InputError`
    if the folder contains another run, or one that workers of a cluster started, unless `by_workers` is True.

    With the option `restart`, an existing folder is first renamed, so that the run starts from the beginning. Call
    this function before you load a model.
    """
    assert job.folder is not None
    if not by_workers and not job.options.restart and (job.folder / BLOCKS).exists():
        raise InputError(f"{job.folder}: this run was started on a cluster; resume it with ray (--ray local)")
    if job.options.restart and (aside := set_aside(job.folder)) is not None:
        LOG.info("the old run was moved to %s", aside)
    job.check()


def carry_out(job: Job, models: OpenedModels, watch: Watch = UNWATCHED) -> Run:
    """Carry out the run that `job` describes, in the event loop of `run_blocking`, and return it. Models that the
    user passed as objects stay loaded."""
    result = run_blocking(_carry_out(job, models, watch))
    return Run.finished(job.folder, job.questions, result.summary, result.records)


def carry_out_with(
    job: Callable[..., Job],
    folder: str | Path,
    system: str,
    role: Role,
    llm: GivenLLM,
    llm_options: Mapping[str, Any] | None,
    concurrency: int | None,
    budget: Mapping[str, Any] | None,
    options: RunOptions,
    watch: Watch,
) -> Run:
    """Carry out a job that calls the LLM in one role, `role` of `system`: check the arguments, open the models,
    and create the job with them. The run stores no prompts."""
    limits = Budget.parse(budget or {})
    used = opened(llm, llm_options)
    check_roles(system, (role,), used.by_role)
    models = used.full()
    made = job(
        folder=Path(folder),
        llm=models,
        concurrency=at_once(concurrency, models),
        budget=limits,
        options=replace(options, keep_prompts=False),
    )
    begin(made)
    return carry_out(made, used, watch)


async def _carry_out(job: Job, models: OpenedModels, watch: Watch) -> SessionResult:
    stopping = asyncio.Event()

    async def look() -> None:
        """Set `stopping` soon after `watch.stop` is set, for which code in the event loop cannot wait."""
        while watch.stop is None or not watch.stop.is_set():
            await asyncio.sleep(_LOOK_S)
        stopping.set()

    watch.on_event(Event("starting", 0, job.questions.count))
    async with models.started():
        looking = asyncio.ensure_future(look())
        try:
            return await work_on(job, stopping, watch.on_event, watch.on_step)
        finally:
            looking.cancel()


def at_once(concurrency: int | None, models: Mapping[Role, FullLLM]) -> int:
    """Return how many questions may be in progress at once: `concurrency` or, if it is None, the default for these
    models. Raises `InputError` if `concurrency` is below 1.
    """
    if concurrency is not None:
        return at_least_one("concurrency", concurrency)
    return max([64, *(one.questions_at_once for one in map(collecting, models.values()) if one is not None)])


def allowed_failures(given: int | str | None, total: int) -> int | None:
    """Return how many of `total` questions may fail. `given` is a number, a share such as "5%", or None, for which
    all questions may fail and the result is None. Raises `InputError` for anything else."""
    if given is None:
        return None
    text = str(given)
    share = text.removesuffix("%")
    if not share.isascii() or not share.isdigit() or (text != share and int(share) > 100):
        raise InputError(f"max_failures {text}: expected a number, or a share of the questions such as 5%")
    return int(share) if text == share else total * int(share) // 100
