"""`pyfast.answer`: answer a set of questions."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pyfast.api.blocking import run_blocking
from pyfast.api.configured import configure
from pyfast.api.models import GivenLLM, OpenedModels, opened
from pyfast.api.run import Run
from pyfast.distributed import cluster_of
from pyfast.engine import (
    Budget,
    Event,
    Job,
    OnEvent,
    OnStep,
    PromptOverrides,
    Question,
    Questions,
    Sampling,
    SessionResult,
    questions_from,
    questions_in,
    set_aside,
    work_on,
    write_questions,
)
from pyfast.engine.events import ignore
from pyfast.engine.outages import PATIENCE_S
from pyfast.engine.question_files import as_path
from pyfast.engine.questions import sampled, unrestricted
from pyfast.engine.run_folder import BLOCKS
from pyfast.errors import InputError
from pyfast.llm import FullLLM, Role
from pyfast.llm.collecting import collecting
from pyfast.llm.roles import check_roles
from pyfast.retrieval import Index
from pyfast.retrieval.pools import RERANK_SCORES
from pyfast.systems import System
from pyfast.systems.conversations import FollowUps

QuestionLike = str | Mapping[str, Any] | Question
ManyQuestions = Iterable[QuestionLike] | AsyncIterable[QuestionLike] | str | Path
_LOG = logging.getLogger("pyfast")
QUESTIONS = "questions.jsonl"
MINUTES = PATIENCE_S / 60
_LOOK_S = 0.05  # seconds between two checks of a caller's `stop`


def answer(
    questions: ManyQuestions,
    *,
    index: Index | str | Path | None = None,
    llm: GivenLLM = "embedded",
    llm_options: Mapping[str, Any] | None = None,
    system: str | System = "n2n",
    settings: Mapping[str, Any] | None = None,
    prompts: str | Path | None = None,
    follow_ups: FollowUps = "off",
    run: str | Path | None = None,
    limit: int | None = None,
    sample: int | None = None,
    documents: Literal["own", "all"] = "own",
    temperature: float = 0.0,
    seed: int = 0,
    concurrency: int | None = None,
    budget: Mapping[str, Any] | None = None,
    outage: float = MINUTES,
    strict: bool = False,
    max_failures: int | str | None = None,
    response_cache: str | Path | None = None,
    sync: Literal["normal", "full"] = "normal",
    keep_prompts: bool = True,
    restart: bool = False,
    accept_code: bool = False,
    retry_failed: bool = False,
    on_event: OnEvent = ignore,
    on_step: OnStep | None = None,
    stop: threading.Event | None = None,
    ray: str | None = None,
    workers: int | None = None,
    worker_resources: Mapping[str, float] | None = None,
) -> Run:
    """Answer questions with one of the systems, and wait until all are answered.

    If `run` is a folder, pyfast stores each reply of the LLM in it before the question that asked for the
    reply continues. If the process is killed, call `answer` again with the same arguments to resume the run.
    The answers are then the same as without the interruption.

    Args:
        questions: The path of a file with one question in each line (JSON Lines, CSV) or row (Parquet). You can
            also give a list or any iterator of strings, mappings or `Question`s. A mapping has `id` and
            `question`. For a conversation it has `id` and `turns`. A string that is not the path of a file is one
            question. An asynchronous iterator runs in pyfast's own event loop, in another thread. If the iterator
            must run in your event loop, use `Engine.answer_many`.
        index: An index, or its folder. The systems `direct` and `cot` need no index.
        llm: A model (see `pyfast.open_llm` and `pyfast.LLM`), or a text that names one. A model that you pass
            as an object stays loaded after `answer` returns. A model that you name by a text is closed before
            `answer` returns. You can also give each role (the purpose of a prompt) its own model:
            `{"default": ..., "pick": ...}`. A role that the mapping does not name uses the default model.
            `pyfast systems NAME` prints the roles.
        llm_options: Options of a model that you name by a text. The key `"NAME"` sets an option of the
            default model. The key `"ROLE.NAME"` sets an option of the model of this role.
        system: The name of a system (`pyfast.systems.names()`), a `System`, or `MODULE:NAME` for a `System`
            in a Python module.
        settings: Settings of the system, by name (`pyfast systems NAME` prints them). The setting `preset` sets
            several others at once.
        prompts: A TOML file with prompts that replace prompts of the system.
        follow_ups: What to do with the later questions of a conversation, if the system can answer only single
            questions. `rewrite`: the model rewrites each question so that it can be understood alone. `resolve`:
            the model adds the names that the question leaves out. `off`: the questions stay unchanged.
        run: The folder of the run. None: the run stays in memory and cannot be resumed.
        limit: Answer only the first `limit` questions. A run can be resumed with a higher limit.
        sample: Answer only this number of questions, drawn uniformly. The same call always draws the same
            questions. A larger sample contains each smaller sample. A conversation is drawn with all its
            questions.
        documents: `own`: if a question has the field `documents` (a list of uris), pyfast searches only these
            documents for it. `all`: pyfast ignores this field and searches the whole index.
        temperature: The sampling temperature of the model. A temperature that the system itself sets for a
            prompt takes precedence. At 0, the model always chooses the most probable token.
        seed: The seed of the model's sampling. pyfast also sends it at temperature 0, where most servers ignore
            it.
        concurrency: How many questions are in progress at once. This number does not change the answers. None:
            10,000 for a model behind a Batch API, 64 for every other model.
        budget: Limits by name. Limits of each question are `calls`, `tokens`, `steps`, `seconds`,
            `call_seconds`, `attempts`, `passages` and `answer_tokens`. Limits of the run are `run_tokens` and
            `run_seconds`. `pyfast.engine.Budget` explains each limit.
        outage: How many minutes to wait if the model cannot be reached, is overloaded or has internal errors.
            After this time the run stops, and you can resume it. 0: the run stops immediately.
        strict: What happens if the model gives no usable reply. True: the question fails. False: the system
            takes a simpler step, called its fallback. `run.status.fall_backs` counts these steps.
        max_failures: Stop the run if more than this many questions fail. Give a number, or a share such as `"5%"`.
        response_cache: A folder in which pyfast stores the model's replies to prompts that depend only on the
            question, such as plans. Later runs use these replies and do not ask the model again. Several runs
            can share it.
        sync: `normal`: a power cut can lose the last LLM replies. `full`: a power cut loses no reply, but pyfast
            needs more time to store each reply.
        keep_prompts: Store the prompts in the run's folder, for `Run.prompts`. Use False for private data.
        restart: Start from the beginning. pyfast keeps the old folder under another name.
        accept_code: Resume a run that was started with another version of pyfast or of the system's code. The file
            run.toml then records both versions. The answers may differ from the answers that one version alone
            would give.
        retry_failed: In a resumed run, try again the questions that failed in earlier sessions.
        on_event: A function that pyfast calls with each `pyfast.engine.Event`, from another thread. The function
            must return quickly.
        on_step: A function that pyfast calls with each `pyfast.engine.Step`, from another thread. A step is one
            call that a question makes: to the model, or to a batched function such as a search. pyfast calls
            `on_step` twice for each step: when the step begins and when it ends.
        stop: After you set this event, no new question starts. Questions in progress finish, and you can resume
            the run.
        ray: Let the workers of a Ray cluster answer the questions. `local`: the workers are processes on this
            machine. `auto`: the cluster to which this machine belongs. `HOST:PORT`: the cluster at this
            address. The answers are the same as without `ray`. `run` must be a folder that all machines
            share. Pass the model and the system as text, because each worker opens its own model and system.
        workers: The number of workers. None: as many workers as the cluster has resources for.
        worker_resources: The resources that each worker needs, by Ray's names, such as `{"GPU": 1}`. Default: one
            `CPU`.

    Returns:
        The run. `run.records` has a record for each question, in the order of the questions. `run.status` counts
        the records by their state.

    Raises:
        InputError: An argument is not valid, or the folder has a run with other arguments.
        ModelNotFoundError: The model is not on this machine.
        LLMUnavailableError: The model can no longer be reached.
        RunError: The run cannot continue: the disk is full, too many questions failed, or the run has used its
            budget. No finished work is lost. If the run has a folder, call `answer` again to resume it. Otherwise
            the error's `records` have the answers.

    Example:
        >>> import pyfast
        >>> run = pyfast.answer(
        ...     ["Who discovered Titan?"], index="IDX", llm="openai:qwen3-8b@http://127.0.0.1:8000", system="rag"
        ... )
        >>> for record in run.records:
        ...     print(record.state, record.answer, record.evidence[0].snippet)
    """
    given: dict[str, Any] = {
        "index": index,
        "llm": llm,
        "llm_options": llm_options,
        "system": system,
        "settings": settings,
        "prompts": prompts,
        "follow_ups": follow_ups,
        "temperature": temperature,
        "seed": seed,
        "concurrency": concurrency,
        "budget": budget,
        "outage": outage,
        "strict": strict,
        "response_cache": response_cache,
        "sync": sync,
        "keep_prompts": keep_prompts,
        "accept_code": accept_code,
        "retry_failed": retry_failed,
    }
    of_run: dict[str, Any] = {
        "run": run,
        "limit": limit,
        "sample": sample,
        "documents": documents,
        "max_failures": max_failures,
        "restart": restart,
    }
    cluster = cluster_of(ray, workers, worker_resources)
    if cluster is None:
        job, used = job_of(questions, **given, **of_run)
        return carry_out(job, used, on_event=on_event, on_step=on_step, stop=stop)
    if on_step is not None:
        raise InputError("on_step: cannot be used with ray: the steps are in other processes")
    from pyfast.api.distributing import answer_by_workers

    return answer_by_workers(questions, given, of_run, cluster, on_event, stop or threading.Event())


def job_of(
    questions: ManyQuestions,
    *,
    index: Index | str | Path | None,
    llm: GivenLLM,
    llm_options: Mapping[str, Any] | None = None,
    system: str | System,
    settings: Mapping[str, Any] | None,
    prompts: str | Path | PromptOverrides | None,
    follow_ups: FollowUps,
    run: str | Path | None,
    limit: int | None = None,
    sample: int | None = None,
    documents: Literal["own", "all"] = "own",
    temperature: float = 0.0,
    seed: int = 0,
    concurrency: int | None,
    budget: Mapping[str, Any] | None,
    outage: float,
    strict: bool = False,
    max_failures: int | str | None = None,
    response_cache: str | Path | None = None,
    sync: Literal["normal", "full"] = "normal",
    keep_prompts: bool = True,
    restart: bool = False,
    accept_code: bool = False,
    retry_failed: bool = False,
    by_workers: bool = False,
    joins: bool = False,
) -> tuple[Job, OpenedModels]:
    """Make the `Job` that `answer` carries out, and open the models of this `Job`. An argument that has the
    same name as an argument of `answer` also has the same meaning.

    If the run has a folder, the function checks the folder. It also writes the questions into the folder,
    unless the run reads them from a file. `joins`: another process has started the run, so the function writes
    nothing into the folder. `by_workers`: accept the folder of a run that workers of a cluster have started.
    Without `by_workers`, such a folder is an error. Raises `InputError` if an argument is not valid, or if the
    folder has a run with other arguments.
    """
    # Check all arguments before anything is created.
    configured = configure(
        system, settings, index, prompts, follow_ups, None if run is None or restart else Path(run)
    )
    limits = Budget.parse(budget or {})
    limits = limits.model_copy(update={"strict": True}) if strict else limits
    asked = read_in(questions, limit if limit is None else at_least_one("limit", limit))
    if documents == "all":
        asked = unrestricted(asked)
    elif documents != "own":
        raise InputError(f"documents: expected own or all, got {documents!r}")
    asked, gold = (asked, "") if sample is None else (sampled(asked, at_least_one("sample", sample)), asked.place)
    failures = allowed_failures(max_failures, asked.count)
    folder = None if run is None else Path(run)
    if folder is None and (restart or retry_failed):
        raise InputError("restart and retry_failed need the folder of a run")
    used = opened(llm, llm_options)
    check_roles(configured.system.name, configured.roles, used.by_role)
    models = used.full(None if response_cache is None else Path(response_cache))
    if folder is not None:
        # A model without a fingerprint is refused here, before an old run gets another name.
        _ = [model.fingerprint for model in models.values()]
    session = configured.open(None if restart else folder)
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
            "index": "" if configured.index is None else str(configured.index.folder),
            **({"gold": gold} if gold else {}),
        },
        sampling=Sampling(not_negative("temperature", temperature), int(not_negative("seed", seed))),
        accept_code=accept_code,
        concurrency=at_once(concurrency, models),
        budget=limits,
        failures=failures,
        outage_seconds=60 * not_negative("outage", outage),
        sync=sync,
        keep_prompts=keep_prompts,
        retry_failed=retry_failed,
    )
    if folder is not None and not joins:
        if not by_workers and not restart and (folder / BLOCKS).exists():
            raise InputError(
                f"{folder}: workers of a cluster have started this run: resume it with ray (--ray local)"
            )
        begin(job, restart)
        if job.index is not None:
            job = replace(job, index=job.index.keeping_scores(folder / RERANK_SCORES))
        if not asked.place:
            job = replace(job, questions=write_questions(asked, folder / QUESTIONS))
        if session is not None:
            session = session.kept(folder)
            resumes = configured.system.resumes
            job = replace(
                job,
                ask=configured.ask(session),
                resumed=None if resumes is None else partial(resumes, session, configured.settings),
            )
    return job, used


def read_in(questions: ManyQuestions, limit: int | None) -> Questions:
    """Read the first `limit` questions (None: all questions) and check them. Raises `InputError` if a
    question is not valid."""
    if isinstance(questions, str):
        questions = as_path(questions) or [questions]
    if isinstance(questions, Path):
        return questions_in(questions, limit)
    if isinstance(questions, AsyncIterable):
        questions = run_blocking(_collected(questions, limit))
    return questions_from(questions, limit)


async def _collected(questions: AsyncIterable[QuestionLike], limit: int | None) -> list[QuestionLike]:
    collected: list[QuestionLike] = []
    async for question in questions:
        collected.append(question)
        if len(collected) == limit:
            break
    return collected


def begin(job: Job, restart: bool = False) -> None:
    """Check that the run's folder is new, or that the run in it has the same configuration as `job`. Raises
    `InputError` if the folder has another run.

    With `restart`, the function first gives an existing folder another name, so that the run starts from its
    beginning. Call this function before you load a model.
    """
    assert job.folder is not None
    if restart and (aside := set_aside(job.folder)) is not None:
        _LOG.info("the old run is now %s", aside)
    job.check()


def carry_out(
    job: Job,
    models: OpenedModels,
    *,
    on_event: OnEvent = ignore,
    on_step: OnStep | None = None,
    stop: threading.Event | None = None,
) -> Run:
    """Carry out the run that `job` describes, in the event loop of `run_blocking`, and return the run. Models
    that the user passed as objects stay loaded."""
    result = run_blocking(_carry_out(job, models, on_event, on_step, stop))
    return Run.finished(job.folder, job.questions.count, result.summary, result.records)


async def _carry_out(
    job: Job, models: OpenedModels, on_event: OnEvent, on_step: OnStep | None, stop: threading.Event | None
) -> SessionResult:
    on_event(Event("starting", 0, job.questions.count))
    async with models.started(), _watched(stop) as stopping:
        return await work_on(job, stopping, on_event, on_step)


@contextlib.asynccontextmanager
async def _watched(stop: threading.Event | None) -> AsyncIterator[asyncio.Event]:
    """Yield an asyncio event that is set soon after `stop` is set. If `stop` is None, the asyncio event is
    never set. Code in the event loop cannot wait for `stop` itself."""
    stopping = asyncio.Event()

    async def look() -> None:
        assert stop is not None
        while not stop.is_set():
            await asyncio.sleep(_LOOK_S)
        stopping.set()

    looking = None if stop is None else asyncio.ensure_future(look())
    try:
        yield stopping
    finally:
        if looking is not None:
            looking.cancel()


def at_once(concurrency: int | None, models: Mapping[Role, FullLLM]) -> int:
    """Return how many questions may be in progress at once. This number is `concurrency`, or if `concurrency`
    is None, the default for these models. Raises `InputError` if `concurrency` is below 1.
    """
    if concurrency is not None:
        return at_least_one("concurrency", concurrency)
    return max([64, *(one.questions_at_once for one in map(collecting, models.values()) if one is not None)])


def at_least_one(name: str, value: int) -> int:
    """Return the number `value`. Raises `InputError` if it is below 1."""
    if value < 1:
        raise InputError(f"{name}: expected a number of at least 1, got {value}")
    return value


def not_negative(name: str, value: float) -> float:
    """Return the number `value`. Raises `InputError` if it is below 0, infinite or NaN."""
    if not value >= 0 or value == math.inf:
        raise InputError(f"{name}: expected a number of at least 0, got {value}")
    return value


def allowed_failures(given: int | str | None, total: int) -> int | None:
    """Return how many of `total` questions may fail. `given` is a number, or a share such as "5%". If `given`
    is None, all questions may fail, and the result is None. Raises `InputError` if `given` is neither a
    number nor a share."""
    if given is None:
        return None
    text = str(given)
    share = text.removesuffix("%")
    if not share.isascii() or not share.isdigit() or (text != share and int(share) > 100):
        raise InputError(f"max_failures {text}: expected a number, or a share of the questions such as 5%")
    return int(share) if text == share else total * int(share) // 100
