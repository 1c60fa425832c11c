"""`pyfast answer` and `pyfast estimate`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pyfast.commands.arguments import Asked, Limit, Searched, read_models, with_options
from pyfast.commands.progress import tell, watched
from pyfast.commands.terminal import plain, say
from pyfast.errors import InputError
from pyfast.utils.options import Cluster, Hardware, Option, RunOptions, Sampling
from pyfast.utils.text_forms import counted

if TYPE_CHECKING:
    from pyfast.api.estimate import Estimate
    from pyfast.api.run import Run
    from pyfast.engine import Watch


@with_options
def answer(
    questions: Path,
    *,
    run: Path | None = None,
    asked: Asked,
    searched: Searched,
    hardware: Hardware,
    options: RunOptions,
    sampling: Sampling,
    cluster: Cluster | None,
    index: Path | None = None,
    shared_updates: bool = False,
    limit: Limit = None,
    accept_duplicates: bool = False,
    dry_run: bool = False,
    based_on: Annotated[Path | None, Option(flag="--from")] = None,
    prices: Path | None = None,
) -> None:
    """Answer questions, or resume a run.

    Args:
        questions: A file (JSON lines, CSV, TSV, XLSX, Parquet or Arrow). Each line or row has `question`, or
            `turns` for a conversation, and preferably an `id`.
        run: The folder of the run; if it exists, the run resumes. Required, except with --dry-run.
        index: The folder of an index. Optional for systems that need none (see `pyfast systems`), such as direct.
        shared_updates: For subqrag: share the triples extracted for one question with all questions of the run.
        accept_duplicates: For --llm batch:MODEL@URL: accept a provider that does not list its batches, or does not
            store their metadata. If the run is killed, a batch may then be submitted and paid for twice.
        dry_run: Estimate LLM calls, tokens and price without answering anything.
        based_on: With --dry-run: an earlier run of the same system to estimate from.
        prices: With --dry-run: a price list (TOML), to estimate the price.
    """
    import pyfast.api.answer
    import pyfast.api.estimate
    from pyfast.api.telemetry import export_spans

    settings = {**asked.settings, **({"shared_updates": "on"} if shared_updates else {})}
    llm_options = dict(asked.llm_options)
    if accept_duplicates:
        roles = [role for role, spec in asked.llm.items() if spec.startswith("batch:")]
        if not roles:
            raise InputError("--accept-duplicates can only be used with --llm batch:MODEL@URL")
        names = ("accept_duplicates" if role == "default" else f"{role}.accept_duplicates" for role in roles)
        llm_options |= dict.fromkeys(names, True)
    given = asked.given | {"settings": settings, "llm_options": llm_options}
    if dry_run:
        given = {name: value for name, value in given.items() if name not in ("llm_options", "concurrency")}
        opened = None if index is None else searched.open(index, hardware)
        given |= {"limit": options.sample or limit, "based_on": based_on, "prices": prices}
        expected = pyfast.api.estimate.estimate(questions, index=opened, columns=options.columns, **given)
        _show_estimate(expected, asked.concurrency)
        if options.reused:
            say("this estimate counts replies reused with --reuse as new LLM calls")
        return
    if run is None:
        raise InputError("answer needs --run FOLDER, the folder of the run")
    export_spans()
    work = partial(pyfast.api.answer.answer, questions, run=run, limit=limit, sampling=sampling, options=options)

    def answered(watch: Watch) -> Run:
        return work(index=index and searched.open(index, hardware), cluster=cluster, watch=watch, **given)

    tell(watched(run, asked.llm, answered))
    for earlier in options.reused:
        print(plain(f"to see which answers changed: pyfast compare {earlier} {run} --answers"))


def _show_estimate(expected: Estimate, concurrency: int | None = None) -> None:
    """Print an estimate. If `concurrency` is not that of the earlier run, say that it does not count."""
    from pyfast.evaluation.tables import shown

    asked = counted(expected.questions, "question")
    say(f"estimate for {asked}, from {plain(expected.basis)}, with 95 % intervals:")
    rows = {
        "LLM calls": expected.llm_calls,
        "prompt tokens": expected.prompt_tokens,
        "reply tokens": expected.completion_tokens,
        f"price in {plain(expected.currency)}": expected.money,
        "total seconds of the questions": expected.seconds,
        "hours for the whole run": expected.hours,
    }
    for name, one in rows.items():
        if one is not None:
            say(f"  {name}: {shown(one.value)} ({shown(one.low)} to {shown(one.high)})")
    if (at_once := expected.in_progress) is not None:
        other = f", not --concurrency {concurrency}" if concurrency not in (None, round(at_once)) else ""
        say(f"  these times assume {shown(at_once, 1)} questions at once, as in the earlier run{other}")
    if expected.note:
        say(f"  {expected.note}")
    if expected.shares:
        shares = sorted(expected.shares.items(), key=lambda entry: -entry[1])
        say(f"  time of a question by stage: {', '.join(f'{name} {share:.0%}' for name, share in shares)}")


@with_options
def estimate(
    *,
    questions: str,
    based_on: Annotated[Path, Option(flag="--from")],
    options: Annotated[RunOptions, "columns"],
    llm: list[str] | None = None,
    system: str | None = None,
    workers: Annotated[int, Option(min=1)] = 1,
    prices: Path | None = None,
) -> None:
    """Estimate the hours, LLM calls, tokens and price of a run from an earlier run.

    Args:
        questions: The number of questions, such as 1e8, or a question file.
        based_on: An earlier run of the same system to estimate from.
        llm: The LLM whose price counts, as in `pyfast answer`; by default the LLM of the earlier run.
        system: The system; by default the system of the earlier run.
        workers: How many workers of a cluster will answer the questions.
        prices: A price list (TOML) that includes this LLM.
    """
    import pyfast.api.estimate
    from pyfast.engine import recorded_value

    try:
        asked: int | Path = int(float(questions))
    except (ValueError, OverflowError):
        asked = Path(questions)
        if not asked.exists():
            raise InputError(f"--questions {questions}: expected a number or an existing file") from None
    _show_estimate(
        pyfast.api.estimate.estimate(
            asked,
            system=system or str(recorded_value(based_on, "system", "name")),
            llm=read_models(llm) or None,
            based_on=based_on,
            prices=prices,
            workers=workers,
            columns=options.columns,
        )
    )
