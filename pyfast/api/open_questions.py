"""Write questions about a corpus as a whole, for comparing the long answers of two systems."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from pyfast.api.index import index_of
from pyfast.api.jobs import carry_out_with
from pyfast.api.models import GivenLLM
from pyfast.engine import Job, Question, Questions, Watch
from pyfast.engine.events import UNWATCHED
from pyfast.errors import InputError, RunError
from pyfast.evaluation.open_questions import (
    MAX_QUESTIONS,
    MAX_TASKS,
    MAX_USERS,
    OPEN_QUESTIONS,
    OPEN_USERS,
    open_questions,
)
from pyfast.retrieval import Index
from pyfast.systems.system import source_digest
from pyfast.utils.files import write_atomically
from pyfast.utils.options import OF_EVERY_RUN, RUN_DEFAULTS, RunOptions, at_least_one


def write_questions(
    index: Index | str | Path,
    out: str | Path,
    *,
    run: str | Path,
    users: int = 5,
    tasks: int = 5,
    questions: int = 10,
    llm: GivenLLM,
    llm_options: Mapping[str, Any] | None = None,
    concurrency: int | None = None,
    budget: Mapping[str, Any] | None = None,
    options: RunOptions = RUN_DEFAULTS,
    watch: Watch = UNWATCHED,
) -> list[dict[str, str]]:
    """Let a language model write questions about a corpus as a whole. The MTQA paper compares long answers to such
    questions.

    The model reads a sample of passages from the whole corpus. It invents users, tasks for each user, and
    questions for each task. The questions have no gold answers: use `judge_runs` to compare the answers of two
    systems.

    Args:
        index: An index of the corpus, or its folder.
        out: The file to write, with one JSON object per line: `id`, `question`, `user` and `task`.
        run: The folder of the run that writes the questions. A stopped run resumes if you call the function again
            with the same arguments.
        users: How many users the model invents.
        tasks: How many tasks each user has.
        questions: How many questions each task has.
        llm: The model that writes the questions, with the role `plan`.
            `llm` and all later arguments are as in `pyfast.answer`. The supported `options` are `outage`, `sync`,
            `keep_prompts`, `restart` and `retry_failed`; others are rejected.

    Returns:
        The questions. The model may write fewer than `users * tasks * questions`.

    Raises:
        InputError: A number is out of range, or an argument is not valid for `pyfast.answer`.
        RunError: The model wrote no readable questions, or the run was stopped.

    Example:
        >>> from pyfast.api.open_questions import write_questions
        >>> asked = write_questions("IDX", "asked.jsonl", run="ASKED", llm="openai:qwen3-8b@http://127.0.0.1:8000")
        >>> print(len(asked), "questions, such as", asked[0]["question"])
    """
    sizes = {"users": users, "tasks": tasks, "questions": questions}
    for (name, size), most in zip(sizes.items(), (MAX_USERS, MAX_TASKS, MAX_QUESTIONS), strict=True):
        if at_least_one(name, size) > most:
            raise InputError(f"{name}: expected at most {most}, got {size}")
    options = options.only("write_questions", *OF_EVERY_RUN)
    here = index_of(index)
    job = partial(
        Job,
        questions=Questions(lambda: iter([Question("questions", "")]), 1, "questions about a corpus"),
        system="questions",
        system_code=source_digest(open_questions),
        ask=partial(open_questions, users=users, tasks=tasks, questions=questions),
        settings=sizes,
        prompts=(OPEN_USERS, OPEN_QUESTIONS),
        index=here,
        places={"index": str(here.folder)},
    )
    role = OPEN_USERS.role
    done = carry_out_with(job, run, "questions", role, llm, llm_options, concurrency, budget, options, watch)
    record = next(iter(done.records), None)
    if record is None or record.answer is None:
        reason = "the run was stopped" if record is None else record.reason or "the model wrote none"
        raise RunError(f"{run} contains no questions, because {reason}")
    lines: list[dict[str, str]] = orjson.loads(record.answer)
    write_atomically(Path(out), b"".join(orjson.dumps(line) + b"\n" for line in lines))
    return lines
