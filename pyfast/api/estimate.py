"""`pyfast.estimate`: estimate what a run will cost, before it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pyfast.api.answer import answer
from pyfast.api.jobs import ManyQuestions, read_in
from pyfast.api.run import Run, folder_of
from pyfast.engine import recorded_value
from pyfast.engine.configuration import CONFIGURATION, PLACES, read_configuration
from pyfast.engine.journal.journal_reader import ServiceTimes, Used, service_times, used_by
from pyfast.errors import InputError
from pyfast.evaluation.cost import Price, Prices, listed, money_of
from pyfast.llm import DEFAULT_ROLE, ROLES, open_llm
from pyfast.retrieval import Index
from pyfast.systems import System, load_system
from pyfast.utils.options import RunOptions, at_least_one

_DRAWS = 2_000


@dataclass(frozen=True, slots=True)
class Expected:
    """An expected total with its 95 % interval. The interval covers only the sampling error of the questions."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """The expected LLM calls, tokens, price and time of a whole run."""

    questions: int
    basis: str
    """What the estimate comes from: an earlier run, or a sample of the questions"""
    llm_calls: Expected
    prompt_tokens: Expected
    completion_tokens: Expected
    money: Expected | None
    """The price of the run. None: no price list was given"""
    seconds: Expected | None
    """The sum of all questions' times in seconds, each from start to end. The run itself takes less time, because
    it works on several questions at once. None: the estimate does not come from an earlier run, or that run did
    not record times, or all its questions reused replies"""
    currency: str | None = None
    """The currency of `money`"""
    hours: Expected | None = None
    """The hours until all questions are answered, excluding the startup of models and workers. None: the estimate
    does not come from an earlier run, or fewer than two of its questions have times of their own
    """
    note: str = ""
    """If the earlier run reused replies: how many of its questions the times come from"""
    shares: Mapping[str, float] = field(default_factory=dict)
    """How a question in the earlier run spent its time, as shares between 0 and 1: `llm`, `waiting for the llm`
    (while all its slots were taken), `search` (searches and other batched calls), `engine` (pyfast's own process).
    The sum can exceed 1 if a question makes several calls at once
    """
    in_progress: float | None = None
    """How many questions are in progress at once, on average, for `seconds` and `hours`: on each worker as many as
    on a worker of the earlier run. With another `concurrency`, these times differ. None: `hours` is None"""


def estimate(
    questions: ManyQuestions | int,
    *,
    index: Index | str | Path | None = None,
    llm: str | Mapping[str, str] | None = None,
    system: str | System = "n2n",
    settings: Mapping[str, Any] | None = None,
    budget: Mapping[str, Any] | None = None,
    limit: int | None = None,
    based_on: Run | str | Path | None = None,
    sample: int = 20,
    context_window: int = 32_768,
    prices: str | Path | Prices | None = None,
    workers: int = 1,
    columns: Mapping[str, str] | None = None,
) -> Estimate:
    """Estimate the LLM calls, tokens and price of a run without calling its LLM.

    With `based_on`, an earlier run of the same system, pyfast multiplies that run's mean usage per question by the
    number of questions. Without it, pyfast answers a uniform sample of the questions with the LLM `instant`, which
    replies immediately with text that fits the schema.

    With `instant`, searches and prompts are real, but replies are not, so a plan may contain more or fewer hops
    than a real language model's. `instant` counts four bytes as one token. For a reliable estimate, carry out a
    small real run and pass it as `based_on`.

    Args:
        questions: As in `pyfast.answer`. With `based_on`, the number of questions is enough.
        index: As in `pyfast.answer`. Only used without `based_on`.
        llm: The name of the run's model, or a mapping from roles to such names, used only to look up prices in
            `prices`. None: the models of the earlier run, or `embedded` if there is none.
        system: As in `pyfast.answer`.
        settings: As in `pyfast.answer`. Only used without `based_on`.
        budget: Limits per question, as in `pyfast.answer`. Only used without `based_on`.
        limit: Count only the first `limit` questions.
        based_on: An earlier run of the system, or its folder.
        sample: How many questions to try. Only used without `based_on`.
        context_window: The size of the LLM's context window in tokens. Only used without `based_on`.
        prices: A price list, or its file (see `pyfast.evaluation.read_prices`).
        workers: How many workers of a cluster will answer the questions. This affects only the result's `hours`.
            The estimate assumes that each worker is as fast as a worker (or the only process) of the earlier run,
            which holds if each has its own model, or if they share an LLM server with spare capacity.
        columns: The columns of a question file whose names differ from pyfast's, as in `pyfast.RunOptions`.

    Returns:
        The expected totals with intervals.

    Raises:
        InputError: An argument is not valid, the model is missing from the price list, or `based_on` has no
            answers or is a run of a different system.

    Example:
        >>> import pyfast
        >>> expected = pyfast.estimate("QUESTIONS.jsonl", index="IDX", system="rag", sample=5)
        >>> expected.llm_calls.value / expected.questions
        1.0
    """
    at_least_one("sample", sample)
    known = listed(prices)
    if llm is None:
        llm = "embedded" if based_on is None else _models_of(_folder(based_on, system))
    specs = {"default": llm} if isinstance(llm, str) else dict(llm)
    try:
        of_role = {} if known is None else {role: known.price(spec) for role, spec in specs.items()}
    except InputError as error:
        raise InputError(f"{error}; choose the model with --llm or llm=") from None
    at_least_one("workers", workers)
    if isinstance(questions, int):
        if columns:
            raise InputError("columns: can only be used with a question file")
        count = at_least_one("questions", questions if limit is None else min(questions, limit))
    else:
        asked = read_in(questions, limit, columns)
        count = asked.count
    service: ServiceTimes | None = None
    if based_on is None:
        if isinstance(questions, int):
            raise InputError("questions: a number can only be used together with an earlier run (based_on)")
        tried = answer(
            asked.read(),
            index=index,
            llm=open_llm("instant", context_window=context_window),
            system=system,
            settings=settings,
            budget=budget,
            options=RunOptions(sample=min(sample, asked.count)),
        )
        used = [Used(**asdict(record.usage)) for record in tried.records]
        basis = f"{len(used)} questions with the LLM `instant`"
        roles = {role: tokens for role, tokens in tried.status.tokens_by_role.items() if sum(tokens)}
    else:
        folder = _folder(based_on, system)
        used = list(used_by(folder).values())
        basis, roles = f"{len(used)} questions of {folder}", _by_role(used)
        service = service_times(folder)
    if not used:
        raise InputError(f"there are no finished questions to estimate from ({basis})")
    timed = [one for one in used if not one.reused]
    seconds = [one.seconds for one in timed if one.seconds is not None]
    whose = f"times come only from {len(timed)} of them" if seconds else "there are no times"
    # Each worker is assumed to have as many questions in progress as a worker of the earlier run.
    at_once = None if service is None else service.in_progress / _workers_of(folder) * workers
    reused = f"{len(used) - len(timed)} of {len(used)} questions reused replies of other questions or runs"
    return Estimate(
        count,
        basis,
        _expected([one.llm_calls for one in used], count),
        _expected([one.prompt_tokens for one in used], count),
        _expected([one.completion_tokens for one in used], count),
        _priced(used, roles, of_role, count) if of_role else None,
        _expected(seconds, count) if len(seconds) == len(timed) > 0 else None,
        None if known is None else known.currency,
        None if service is None or at_once is None else _hours(service, at_once, count),
        f"{whose}, because {reused}" if len(timed) < len(used) and based_on is not None else "",
        {} if service is None else service.shares,
        at_once,
    )


def _workers_of(run: Path) -> int:
    """Return how many workers answered an earlier run's questions, or 1 if it was a single process."""
    recorded = recorded_value(run, "places", "workers")
    return int(recorded) if isinstance(recorded, str) and recorded.isdigit() and int(recorded) else 1


def _hours(service: ServiceTimes, at_once: float, count: int) -> Expected:
    """Return the hours until `count` questions are answered, by Little's law: the total time of the questions
    divided by the number of questions in progress."""
    return _expected([seconds / at_once / 3600 for seconds in service.seconds], count)


def _folder(run: Run | str | Path, system: str | System) -> Path:
    path = folder_of(run)
    if path is None:
        raise InputError("based_on: expected a run with a folder")
    of_run = recorded_value(path, "system", "name")
    chosen = load_system(system) if isinstance(system, str) and system != of_run else system
    if (name := chosen if isinstance(chosen, str) else chosen.name) != of_run:
        raise InputError(f"{path} is a run of {of_run}, not of {name}")
    return path


def _models_of(run: Path) -> dict[str, str]:
    """Return the name of a run's model for each role, as run.toml records it."""
    places = read_configuration(run / CONFIGURATION).get(PLACES, {})
    return {
        role: places[name]
        for role in ROLES
        if (name := "llm" if role == DEFAULT_ROLE else f"{role}_llm") in places
    }


def _by_role(used: Sequence[Used]) -> dict[str, tuple[int, int]]:
    roles = {role for one in used for role in one.by_role}
    return {role: tuple(sum(one.by_role.get(role, (0, 0))[k] for one in used) for k in (0, 1)) for role in roles}  # type: ignore[misc]


def _expected(values: Sequence[float], count: int) -> Expected:
    """Return the mean of `values` times `count`, with a 95 % percentile bootstrap interval over the questions."""
    array = np.array(values, np.float64)
    draws = np.random.default_rng(0).integers(0, len(array), (_DRAWS, len(array)))
    low, high = np.quantile(array[draws].mean(axis=1), [0.025, 0.975])
    return Expected(float(array.mean()) * count, float(low) * count, float(high) * count)


def _priced(
    used: Sequence[Used], roles: Mapping[str, tuple[int, int]], of_role: Mapping[str, Price], count: int
) -> Expected:
    """Return the expected price of `count` questions.

    If prices differ between roles, each question's tokens are divided among the roles in proportion to `roles`,
    which gives each role's tokens over all questions (in prompts, in completions). `of_role` gives the price for
    each role.
    """
    default = of_role.get("default") or next(iter(of_role.values()))
    if len(set(of_role.values())) == 1:
        return _expected([money_of(one, default, {}) for one in used], count)
    into, out = (sum(tokens[k] for tokens in roles.values()) or 1 for k in (0, 1))
    prices = [(of_role.get(role, default), a / into, b / out) for role, (a, b) in roles.items()]
    return _expected(
        [sum(p.of(a * one.prompt_tokens, 0, b * one.completion_tokens) for p, a, b in prices) for one in used],
        count,
    )
