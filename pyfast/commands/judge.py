"""`pyfast judge`, and `pyfast questions`, which writes questions for it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from pyfast.commands.arguments import IndexFolder, LlmOptions, Models, read_models, with_options
from pyfast.commands.progress import tell, watched
from pyfast.commands.terminal import plain, say, show_table
from pyfast.utils.options import OF_EVERY_RUN, Option, RunOptions


@with_options
def judge(
    run_a: Path,
    run_b: Path,
    *,
    run: Path,
    models: Models,
    options: Annotated[RunOptions, *OF_EVERY_RUN],
    ties: bool = True,
) -> None:
    """Let an LLM compare the answers of two runs. The LLM sees each pair of answers in both orders.

    Args:
        run_a: The folder of a finished run.
        run_b: The folder of another run on the same questions.
        run: The folder of the judge's run; if it exists, the run resumes.
        ties: Whether the judge may say that two answers are equally good.
    """
    from pyfast.api.judgement import judge_runs

    work = partial(judge_runs, run_a, run_b, run=run, ties=ties, options=options, **models.given)
    judged = watched(run, models.llm, work)
    tell(judged.run)
    rows = (
        (one.dimension, one.a, one.ties, one.swayed, one.b, f"{one.rate:.3f}", f"{one.low:.3f}–{one.high:.3f}")
        for one in judged.rows
    )
    show_table(["dimension", "A wins", "ties", "swayed", "B wins", "rate", "95 %"], rows)
    say(plain(f"A: {run_a}, B: {run_b}; rate: wins of A (a tie counts half); swayed: ties caused by the order"))
    if judged.failed:
        say(f"pairs that could not be judged: {judged.failed}; --retry-failed tries them again")


@with_options
def questions(
    index: IndexFolder,
    *,
    out: Path,
    run: Path,
    llm: list[str],
    given: LlmOptions,
    options: Annotated[RunOptions, *OF_EVERY_RUN],
    users: Annotated[int, Option(min=1)] = 5,
    tasks: Annotated[int, Option(min=1)] = 5,
    per_task: Annotated[int, Option(flag="--questions", min=1)] = 10,
) -> None:
    """Let an LLM write questions about a corpus as a whole, for runs that `pyfast judge` compares.

    Args:
        out: The question file to write, in JSON lines.
        run: The folder of the run. To resume a stopped run, repeat the command.
        llm: The LLM that writes the questions, as in `pyfast answer`.
        users: How many users the LLM invents.
        tasks: How many tasks the LLM invents for each user.
        per_task: How many questions the LLM writes for each task.
    """
    from pyfast.api.open_questions import write_questions

    llms = read_models(llm)
    work = partial(write_questions, index, out, run=run, users=users, tasks=tasks, questions=per_task, llm=llms)
    written = watched(run, llms, partial(work, options=options, **given.given))
    print(f"{out}: {len(written)} questions")
