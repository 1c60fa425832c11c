"""`pyfast judge`, and `pyfast questions`, which writes questions for it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pyfast.commands.arguments import Concurrency, IndexFolder, LlmOptions, Models, read_models, with_options
from pyfast.commands.progress import tell, watched
from pyfast.commands.terminal import plain, say, show_table
from pyfast.utils.options import OF_EVERY_RUN, RunOptions


@with_options
def judge(
    run_a: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    run_b: Annotated[Path, typer.Argument(help="The folder of another run over the same questions.")],
    run: Annotated[Path, typer.Option(help="The folder of the judge's run. If it exists, the run resumes.")],
    models: Models,
    options: Annotated[RunOptions, *OF_EVERY_RUN],
    questions: Annotated[
        Path | None, typer.Option(help="The file of questions, if it is no longer where RUN_A read it.")
    ] = None,
    ties: Annotated[
        bool,
        typer.Option("--ties/--no-ties", help="Whether the judge may say that two answers are equally good."),
    ] = True,
    concurrency: Concurrency = None,
) -> None:
    """Let an LLM compare the answers of two runs. The LLM sees each pair of answers in both orders."""
    from pyfast.api.judgement import judge_runs

    judged = watched(
        run,
        models.llm,
        lambda watch: judge_runs(
            run_a,
            run_b,
            run=run,
            questions=questions,
            ties=ties,
            concurrency=concurrency,
            options=options,
            watch=watch,
            **models.given,
        ),
    )
    tell(judged.run)
    rows = (
        (one.dimension, one.a, one.ties, one.swayed, one.b, f"{one.rate:.3f}", f"{one.low:.3f}–{one.high:.3f}")
        for one in judged.rows
    )
    show_table(["dimension", "A wins", "ties", "swayed", "B wins", "rate", "95 %"], rows)
    say(plain(f"A: {run_a}, B: {run_b}; rate: of A, a tie half a win; swayed: ties where the order decided"))
    if judged.failed:
        say(f"{judged.failed} pairs could not be judged; --retry-failed tries them again")


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
