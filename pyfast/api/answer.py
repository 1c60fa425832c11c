"""`pyfast.answer`: answer a set of questions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyfast.api.jobs import AnswerArguments, ManyQuestions, carry_out, job_of
from pyfast.api.models import GivenLLM
from pyfast.api.ray_workers import answer_by_workers
from pyfast.api.run import Run
from pyfast.engine import Watch
from pyfast.engine.events import UNWATCHED
from pyfast.retrieval import Index
from pyfast.systems import System
from pyfast.utils.options import GREEDY, RUN_DEFAULTS, Cluster, RunOptions, Sampling


def answer(
    questions: ManyQuestions,
    *,
    index: Index | str | Path | None = None,
    llm: GivenLLM = "embedded",
    llm_options: Mapping[str, Any] | None = None,
    system: str | System = "n2n",
    settings: Mapping[str, Any] | None = None,
    run: str | Path | None = None,
    limit: int | None = None,
    concurrency: int | None = None,
    budget: Mapping[str, Any] | None = None,
    sampling: Sampling = GREEDY,
    options: RunOptions = RUN_DEFAULTS,
    cluster: Cluster | None = None,
    watch: Watch = UNWATCHED,
) -> Run:
    """Answer questions with one of the systems, and wait until all are answered.

    If `run` is a folder, pyfast stores each of the LLM's replies in it before the question that is waiting for the
    reply continues. If the process is killed, call `answer` again with the same arguments to resume the run; the
    answers are the same as without the interruption.

    Args:
        questions: The path of a file (JSON lines, CSV, TSV, XLSX, Parquet or Arrow) with one question per line or
            row, a DataFrame, an Arrow table, or a list or other iterable of strings, mappings or `Question`s. A
            mapping contains `id` and `question` or, for a conversation, `id` and `turns`. A question without an id
            gets one derived from its text. A string that is not a file path is one
            question. An asynchronous iterator runs in pyfast's own event loop, in another thread; if it must run
            in your event loop, use `Engine.answer_many`.
        index: An index, or its folder. Optional for systems that need none, such as `direct`.
        llm: A model (see `pyfast.open_llm` and `pyfast.LLM`), or a string that names one. A model passed as an
            object stays loaded after `answer` returns; a model given by name is closed at the end. You can also
            give each role (the purpose of a prompt) its own model: `{"default": ..., "pick": ...}`. A role that
            the mapping does not name uses the default model. `pyfast systems NAME` prints the roles.
        llm_options: Options of models given by name. The key `"NAME"` sets an option of the default model, and
            `"ROLE.NAME"` one of the model for that role.
        system: The name of a system (`pyfast.systems.names()`), a `System`, or `MODULE:NAME` for a `System`
            in a Python module.
        settings: Settings of the system, by name (`pyfast systems NAME` prints them). The setting `preset` sets
            several others at once.
        run: The folder of the run. None: the run stays in memory and cannot be resumed. A resumed run uses the
            index at the commit it started with, and logs a warning if there is a newer one.
        limit: Answer only the first `limit` questions. A run can be resumed with a higher limit.
        concurrency: How many questions to process at once. This does not affect the answers. None: 10,000 for a
            model behind a Batch API, 64 for any other model.
        budget: Limits by name. The limits per question are `calls`, `tokens`, `steps`, `seconds`, `call_seconds`,
            `attempts`, `passages` and `answer_tokens`; those of the run are `run_tokens` and `run_seconds`.
            `pyfast.engine.Budget` explains each limit.
        sampling: The model's sampling temperature and seed.
        options: How the run handles failures and outages, and what it stores.
        cluster: Let the workers of a Ray cluster answer the questions. The answers are the same as without a
            cluster. `run` must be a folder that all machines share. Pass the model and the system as strings,
            because each worker opens its own.
        watch: Functions that pyfast calls with the run's events and steps, and an event that stops the run.

    Returns:
        The run. `run.records` contains a record for each question, in the order of the questions. `run.status`
        counts the records by state.

    Raises:
        InputError: An argument is not valid, or the folder contains a run with other arguments.
        ModelNotFoundError: The model is not on this machine.
        LLMUnavailableError: The model has become unreachable.
        RunError: The run cannot continue: the disk is full, too many questions failed, or the run has used its
            budget. No finished work is lost. If the run has a folder, call `answer` again to resume it. Otherwise
            the error's `records` contain the answers.

    Example:
        >>> import pyfast
        >>> run = pyfast.answer(
        ...     ["Who discovered Titan?"], index="IDX", llm="openai:qwen3-8b@http://127.0.0.1:8000", system="rag"
        ... )
        >>> for record in run.records:
        ...     print(record.state, record.answer, record.evidence[0].snippet)
    """
    given = AnswerArguments(
        index=index,
        llm=llm,
        llm_options=llm_options,
        system=system,
        settings=settings,
        run=run,
        limit=limit,
        concurrency=concurrency,
        budget=budget,
        sampling=sampling,
        options=options,
    )
    if cluster is not None:
        return answer_by_workers(questions, given, cluster, watch)
    job, used = job_of(questions, given)
    return carry_out(job, used, watch)
