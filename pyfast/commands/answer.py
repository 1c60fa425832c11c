"""`pyfast answer`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from pyfast.commands.running import (
    Concurrency,
    Limits,
    Llm,
    LlmOption,
    Restart,
    RetryFailed,
    Sync,
    begin,
    carry_out,
)
from pyfast.commands.terminal import pairs, values
from pyfast.errors import InputError


def answer(
    questions: Annotated[Path, typer.Argument(help="JSON lines with `id` and `question` (or `turns`).")],
    run: Annotated[Path, typer.Option(help="The folder of the run; one that was begun goes on.")],
    index: Annotated[Path | None, typer.Option(help="An index; `direct` and `cot` need none.")] = None,
    system: Annotated[
        str, typer.Option(help="n2n, subqrag, mtqa, hseq, graph_convqa, rag, decompose, cot or direct.")
    ] = "n2n",
    llm: Llm = "embedded",
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the system, such as graph=off; repeatable.")
    ] = None,
    llm_option: LlmOption = None,
    budget: Limits = None,
    reuse: Annotated[
        Path | None, typer.Option(help="A folder for plans that follow from the question alone; runs share it.")
    ] = None,
    shared_updates: Annotated[
        bool, typer.Option("--shared-updates", help="subqrag: what a question learns, others see at once.")
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, max=10**9, help="Answer only the first ones.")] = None,
    concurrency: Concurrency = 64,
    max_failures: Annotated[
        str | None, typer.Option(help="Stop when more than so many failed: a number, or a share such as 5%.")
    ] = None,
    sync: Sync = "normal",
    restart: Restart = False,
    retry_failed: RetryFailed = False,
) -> None:
    """Answer questions, or go on with a run that was stopped."""
    from pyfast.engine import Budget, Job, check_questions, configuration, read_questions
    from pyfast.llm import Remembered, open_llm
    from pyfast.retrieval import Index
    from pyfast.systems import load_system

    # All that can be wrong is found before anything is made.
    chosen = load_system(system)
    settings = chosen.configure(
        {**pairs("--set", setting), **({"shared_updates": "on"} if shared_updates else {})}
    )
    limits = Budget.parse(pairs("--budget", budget))
    total, digest = check_questions(questions, limit)
    failures = _failures(max_failures, total)
    if index is None and chosen.needs_index:
        raise InputError(f"--system {system} retrieves: give --index (made by `pyfast index`)")
    opened = Index(index) if index is not None else None
    session = None
    if opened is not None and chosen.opens is not None:
        session = chosen.opens(opened, settings, None if restart else run)
    backend = open_llm(llm, **values(pairs("--llm-option", llm_option)))
    if reuse is not None:
        backend = Remembered(backend, reuse)
    describe = partial(
        configuration,
        system=system,
        settings=settings.model_dump(mode="json"),
        prompts=chosen.prompts,
        llm=backend,
        index=opened,
        budget=limits.shaping(),
        questions={"count": total, "digest": digest},
        places={"questions": str(questions), "index": str(index or ""), "llm": llm},
        knowledge=None if session is None else session.describe(),
    )
    begin(run, describe, restart)
    resumed = None
    if session is not None:
        session = session.kept(run)
        resumed = chosen.resumes and partial(chosen.resumes, session, settings)
    job = Job(
        folder=run,
        questions=partial(read_questions, questions, limit),
        ask=chosen.ask(settings, session),
        index=opened,
        llm=backend,
        describe=describe,
        concurrency=concurrency,
        budget=limits,
        failures=failures,
        sync=sync,
        retry_failed=retry_failed,
        resumed=resumed,
        finished=None if session is None else session.merge,
    )
    carry_out(job, total)


def _failures(text: str | None, total: int) -> int | None:
    """How many of `total` questions may fail."""
    if text is None:
        return None
    share = text.removesuffix("%")
    if not share.isascii() or not share.isdigit() or (text != share and int(share) > 100):
        raise InputError(f"--max-failures {text}: expected a number, or a share of the questions such as 5%")
    return int(share) if text == share else total * int(share) // 100
