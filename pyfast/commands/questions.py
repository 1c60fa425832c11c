"""`pyfast questions`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pyfast.commands.running import (
    Concurrency,
    Limits,
    LlmOption,
    Outage,
    Restart,
    RetryFailed,
    Sync,
    models,
    watched,
)
from pyfast.commands.terminal import pairs, values


def questions(
    index: Annotated[Path, typer.Argument(help="An index, made by `pyfast index`.")],
    out: Annotated[Path, typer.Option(help="The file of questions to write, in JSON lines.")],
    run: Annotated[Path, typer.Option(help="The folder of the run. To resume a stopped run, repeat the command.")],
    llm: Annotated[list[str], typer.Option(help="The LLM that writes the questions, as in `pyfast answer`.")],
    users: Annotated[int, typer.Option(min=1, help="How many users the LLM invents.")] = 5,
    tasks: Annotated[int, typer.Option(min=1, help="How many tasks each user has.")] = 5,
    per_task: Annotated[int, typer.Option("--questions", min=1, help="How many questions each task has.")] = 10,
    llm_option: LlmOption = None,
    budget: Limits = None,
    concurrency: Concurrency = None,
    outage: Outage = 30.0,
    sync: Sync = "normal",
    restart: Restart = False,
    retry_failed: RetryFailed = False,
) -> None:
    """Let an LLM write questions about a corpus as a whole, for `pyfast judge`. These questions have no gold
    answers."""
    from pyfast.api.open_questions import write_questions

    llms = models(llm)
    options, limits = values(pairs("--llm-option", llm_option)), pairs("--budget", budget)
    written = watched(
        run,
        llms,
        lambda on_event, stop: write_questions(
            index,
            out,
            run=run,
            users=users,
            tasks=tasks,
            questions=per_task,
            llm=llms,
            llm_options=options,
            concurrency=concurrency,
            budget=limits,
            outage=outage,
            sync=sync,
            restart=restart,
            retry_failed=retry_failed,
            on_event=on_event,
            stop=stop,
        ),
    )
    print(f"{out}: {len(written)} questions")
