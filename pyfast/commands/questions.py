"""`pyfast questions`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pyfast.commands.arguments import Concurrency, IndexFolder, LlmOptions, read_models, with_options
from pyfast.commands.running import watched
from pyfast.options import OF_EVERY_RUN, RunOptions


@with_options
def questions(
    index: IndexFolder,
    out: Annotated[Path, typer.Option(help="The file of questions to write, in JSON lines.")],
    run: Annotated[Path, typer.Option(help="The folder of the run. To resume a stopped run, repeat the command.")],
    llm: Annotated[list[str], typer.Option(help="The LLM that writes the questions, as in `pyfast answer`.")],
    given: LlmOptions,
    options: Annotated[RunOptions, *OF_EVERY_RUN],
    users: Annotated[int, typer.Option(min=1, help="How many users the LLM invents.")] = 5,
    tasks: Annotated[int, typer.Option(min=1, help="How many tasks each user has.")] = 5,
    per_task: Annotated[int, typer.Option("--questions", min=1, help="How many questions each task has.")] = 10,
    concurrency: Concurrency = None,
) -> None:
    """Let an LLM write questions about a corpus as a whole, for `pyfast judge`. These questions have no gold
    answers."""
    from pyfast.api.open_questions import write_questions

    llms = read_models(llm)
    written = watched(
        run,
        llms,
        lambda watch: write_questions(
            index,
            out,
            run=run,
            users=users,
            tasks=tasks,
            questions=per_task,
            llm=llms,
            concurrency=concurrency,
            options=options,
            watch=watch,
            **given.given,
        ),
    )
    print(f"{out}: {len(written)} questions")
