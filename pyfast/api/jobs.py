"""The job of a run: check the arguments of `pyfast.answer`, create the job from them, and carry it out in this
process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pyfast.api.index import index_of
from pyfast.api.models import GivenLLM, OpenedModels, opened
from pyfast.api.run import Run
from pyfast.engine import (
    Ask,
    Budget,
    Event,
    Job,
    Prompt,
    PromptOverrides,
    Question,
    Questions,
    SessionResult,
    Watch,
    questions_from,
    questions_in,
    read_prompts,
    recorded_value,
    set_aside,
    work_on,
)
from pyfast.engine.configuration import COLUMNS, CONFIGURATION
from pyfast.engine.events import UNWATCHED
from pyfast.engine.question_files import as_path, quietly, rows_of_table
from pyfast.engine.questions import sampled, unrestricted
from pyfast.engine.run_folder import BLOCKS, QUESTIONS
from pyfast.errors import InputError
from pyfast.llm import FullLLM, Role
from pyfast.llm.protocol import check_roles, collecting
from pyfast.retrieval import Index
from pyfast.retrieval.index.manifest import commit_numbers
from pyfast.retrieval.pools import RERANK_SCORES
from pyfast.systems import System, load_system
from pyfast.systems.conversations import PROMPTS, answer_turn
from pyfast.systems.system import Settings
from pyfast.utils.event_loop import run_blocking
from pyfast.utils.log import LOG
from pyfast.utils.options import GREEDY, RUN_DEFAULTS, FollowUps, RunOptions, Sampling, at_least_one
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
    if begun is not None and (begun / CONFIGURATION).exists() and isinstance(questions, str | Path):
        quietly(Path(questions))  # The run's first session has given the notes about this file.
    asked = read_in(questions, limit if limit is None else at_least_one("limit", limit), options.columns)
    asked = unrestricted(asked) if options.documents == "all" else asked
    asked, gold = (asked, "") if options.sample is None else (sampled(asked, options.sample), asked.place)
    kept = folder and folder / QUESTIONS
    is_kept = kept is not None and bool(asked.place) and Path(asked.place).resolve() == kept.resolve()
    if not asked.place and kept is not None:
        asked = replace(asked, place=str(kept))
    if asked.later and not joins and options.follow_ups == "off" and not reads_history(configured.system):
        told = "%s reads %s without the turns before them; see the option follow_ups"
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
    and create the job with them."""
    limits = Budget.parse(budget or {})
    used = opened(llm, llm_options)
    check_roles(system, (role,), used.by_role)
    models = used.full()
    most = at_once(concurrency, models)
    made = job(folder=Path(folder), llm=models, concurrency=most, budget=limits, options=options)
    begin(made)
    return carry_out(made, used, watch)


async def _carry_out(job: Job, models: OpenedModels, watch: Watch) -> SessionResult:
    stopping = asyncio.Event()

    async def look() -> None:
        """Set `stopping` soon after `watch.stop` is set, for which code in the event loop cannot wait."""
        while watch.stop is None or not watch.stop.is_set():
            await asyncio.sleep(_LOOK_S)
        stopping.set()

    if job.index is not None:
        job.questions.tell_limited(watch.on_limited)
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


@dataclass(frozen=True, slots=True)
class ConfiguredSystem:
    """A system with its settings, its prompts and the index that it searches."""

    system: System
    settings: Settings
    replaced: PromptOverrides | None
    index: Index | None
    follow_ups: FollowUps = "off"

    @property
    def prompts(self) -> tuple[Prompt[Any], ...]:
        """All prompts that the system may use."""
        return (*PROMPTS[self.follow_ups], *self.system.prompts)

    @property
    def roles(self) -> dict[Role, tuple[str, ...]]:
        """The roles that the system uses, with the names of their prompts."""
        roles = dict(self.system.roles)
        for prompt in PROMPTS[self.follow_ups]:
            roles[prompt.role] = (*roles.get(prompt.role, ()), prompt.name)
        return roles

    def described(self) -> dict[str, Any]:
        """Return the settings as JSON types, as run.toml stores them, with `follow_ups` among them unless it is
        `off`."""
        settings = self.settings.model_dump(mode="json")
        return settings if self.follow_ups == "off" else {**settings, "follow_ups": self.follow_ups}

    def open(self, run: Path | None) -> Any:
        """Open and return what the system needs in addition to the index, such as a knowledge graph, or return
        None if it needs nothing more.

        `run` is the folder of the new or resumed run (None: the run stays in memory). A resumed run uses the
        knowledge graph it started with.
        """
        if self.index is None or self.system.opens is None:
            return None
        return self.system.opens(self.index, self.settings, run)

    def ask(self, session: Any) -> Ask:
        """Return the function that answers one question. `session` is the result of `open`."""
        ask = self.system.ask(self.settings, session)
        return (
            ask
            if self.index is None and self.follow_ups == "off"
            else partial(answer_turn, ask=ask, follow_ups=self.follow_ups)
        )


def reads_history(system: str | System) -> bool:
    """Return whether a system itself uses the conversation's earlier turns."""
    chosen = system if isinstance(system, System) else load_system(system)
    return "history" in chosen.settings.model_fields


def configure(
    system: str | System,
    settings: Mapping[str, Any] | None,
    index: Index | str | Path | None,
    prompts: str | Path | PromptOverrides | None = None,
    follow_ups: FollowUps = "off",
    run: Path | None = None,
) -> ConfiguredSystem:
    """Configure a system and open its index. `run` is the folder of a new or resumed run; for a resumed run, the
    index is opened at the commit that the run started with.

    Raises `InputError` if an argument is not valid.
    """
    chosen = system if isinstance(system, System) else load_system(system)
    configured = chosen.configure(settings or {})
    if follow_ups not in PROMPTS:
        raise InputError(f"follow_ups: expected one of {', '.join(PROMPTS)}, got {follow_ups!r}")
    if follow_ups != "off" and reads_history(chosen):
        raise InputError(f"{chosen.name} handles conversations itself: leave out follow_ups={follow_ups}")
    made = ConfiguredSystem(chosen, configured, None, None, follow_ups)
    replaced = None
    if prompts is not None:
        replaced = prompts if isinstance(prompts, PromptOverrides) else read_prompts(Path(prompts))
        replaced.check(chosen.name, made.prompts)
    if index is None and chosen.needs_index:
        raise InputError(f"{chosen.name} needs an index: pass one (--index or index=) built by `pyfast index`")
    opened = None if index is None else index_of(index, run)
    if opened is not None and run is not None and recorded_value(run, "index", "commit") == opened.commit:
        newest = max(commit_numbers(opened.folder))
        if newest > opened.commit:
            LOG.warning(
                "%s is now at commit %d, but this run uses commit %d, with which it began; a new run would use"
                " commit %d, and can reuse the replies of %s",
                *(opened.folder, newest, opened.commit, newest, run),
            )
    return replace(made, replaced=replaced, index=opened)
