"""`pyfast answer`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pyfast.commands.running import (
    EMBEDDED,
    AcceptCode,
    Concurrency,
    Filter,
    Limit,
    Limits,
    Llm,
    LlmOption,
    MaxFailures,
    Outage,
    Ray,
    RerankName,
    Restart,
    RetrieverName,
    RetryFailed,
    Sample,
    Seed,
    Setting,
    Sync,
    SystemName,
    Temperature,
    WorkerResources,
    Workers,
    models,
    resources,
    tell,
    watched,
)
from pyfast.commands.terminal import pairs, plain, values
from pyfast.errors import InputError

if TYPE_CHECKING:
    from pyfast.api.estimating import Estimate


def answer(
    questions: Annotated[
        Path,
        typer.Argument(
            help="A file (JSON lines, CSV or Parquet). Each line or row has `id` and `question`, or for a"
            " conversation `id` and `turns`."
        ),
    ],
    run: Annotated[Path, typer.Option(help="The folder of the run. If it exists, the run resumes.")],
    index: Annotated[
        Path | None, typer.Option(help="The folder of an index. The systems `direct` and `cot` need no index.")
    ] = None,
    system: SystemName = "n2n",
    llm: Llm = EMBEDDED,
    setting: Setting = None,
    prompts: Annotated[
        Path | None, typer.Option(help="A TOML file with prompts that replace the system's own.")
    ] = None,
    follow_ups: Annotated[
        Literal["off", "rewrite", "resolve"],
        typer.Option(
            help="What to do with later questions of a conversation, if the system answers only single"
            " questions. rewrite: the LLM rewrites each question so that it can be understood alone."
            " resolve: the LLM adds the names that the question leaves out. off: the questions stay"
            " unchanged."
        ),
    ] = "off",
    llm_option: LlmOption = None,
    budget: Limits = None,
    response_cache: Annotated[
        Path | None,
        typer.Option(
            help="A folder that stores replies of the LLM that depend only on the question, such as plans,"
            " for later runs. Several runs can share it."
        ),
    ] = None,
    shared_updates: Annotated[
        bool,
        typer.Option(
            "--shared-updates",
            help="For subqrag: a triple that one question learns can be used by all questions of the run.",
        ),
    ] = False,
    retriever: RetrieverName = "bm25",
    rerank: RerankName = "off",
    filter: Filter = None,
    limit: Limit = None,
    sample: Sample = None,
    documents: Annotated[
        Literal["own", "all"],
        typer.Option(
            help="own: a question with the field `documents` searches only these documents. all: every"
            " question searches the whole index."
        ),
    ] = "own",
    temperature: Temperature = 0.0,
    seed: Seed = 0,
    concurrency: Concurrency = None,
    outage: Outage = 30.0,
    max_failures: MaxFailures = None,
    sync: Sync = "normal",
    keep_prompts: Annotated[
        bool,
        typer.Option("--keep-prompts/--no-keep-prompts", help="Store the prompts in the run's folder."),
    ] = True,
    accept_duplicates: Annotated[
        bool,
        typer.Option(
            "--accept-duplicates",
            help="For --llm batch:MODEL@URL: accept a provider that does not list its batches, or does not store"
            " metadata of batches. After a kill, a batch may then be submitted and paid twice.",
        ),
    ] = False,
    restart: Restart = False,
    accept_code: AcceptCode = False,
    retry_failed: RetryFailed = False,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="A question fails if the LLM gives no usable reply. Without --strict, the system takes a"
            " simpler step.",
        ),
    ] = False,
    ray: Ray = None,
    workers: Workers = None,
    worker_resources: WorkerResources = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Answer nothing: estimate LLM calls, tokens and price.")
    ] = False,
    based_on: Annotated[
        Path | None, typer.Option("--from", help="With --dry-run: an earlier run of the system to estimate from.")
    ] = None,
    prices: Annotated[
        Path | None, typer.Option(help="With --dry-run: the file of a price list, for the price.")
    ] = None,
) -> None:
    """Answer questions, or resume a run."""
    import pyfast.api.answering
    from pyfast.api.estimating import estimate
    from pyfast.api.indexing import open_index
    from pyfast.api.telemetry import export_spans

    settings = {**pairs("--set", setting), **({"shared_updates": "on"} if shared_updates else {})}
    llms = models(llm)
    options, limits = values(pairs("--llm-option", llm_option)), pairs("--budget", budget)
    if accept_duplicates:
        options |= dict.fromkeys(_options_of_batches(llms, "accept_duplicates"), True)
    if dry_run:
        show_estimate(
            estimate(
                questions,
                index=None if index is None else open_index(index, retriever, rerank, filter or ()),
                llm=llms,
                system=system,
                settings=settings,
                budget=limits,
                limit=sample or limit,
                based_on=based_on,
                prices=prices,
            )
        )
        return
    export_spans()
    done = watched(
        run,
        llms,
        lambda on_event, stop: pyfast.api.answering.answer(
            questions,
            index=None if index is None else open_index(index, retriever, rerank, filter or ()),
            llm=llms,
            llm_options=options,
            system=system,
            settings=settings,
            prompts=prompts,
            follow_ups=follow_ups,
            run=run,
            limit=limit,
            sample=sample,
            documents=documents,
            temperature=temperature,
            seed=seed,
            concurrency=concurrency,
            outage=outage,
            budget=limits,
            strict=strict,
            max_failures=max_failures,
            response_cache=response_cache,
            sync=sync,
            keep_prompts=keep_prompts,
            restart=restart,
            accept_code=accept_code,
            retry_failed=retry_failed,
            on_event=on_event,
            stop=stop,
            ray=ray,
            workers=workers,
            worker_resources=resources(worker_resources),
        ),
    )
    tell(done)


def _options_of_batches(llms: Mapping[str, str], name: str) -> list[str]:
    """Return the key of the LLM option `name` for each model behind a Batch API: `name` for the default model,
    and `ROLE.name` for the model of a role. Raises `InputError` if there is no such model."""
    roles = [role for role, spec in llms.items() if spec.startswith("batch:")]
    if not roles:
        raise InputError(f"--{name.replace('_', '-')} goes with --llm batch:MODEL@URL")
    return [name if role == "default" else f"{role}.{name}" for role in roles]


def show_estimate(expected: Estimate) -> None:
    """Print an estimate."""
    print(f"{expected.questions} questions, estimated from {plain(expected.basis)}; 95 % intervals:")
    rows = {
        "LLM calls": expected.llm_calls,
        "tokens of prompts": expected.prompt_tokens,
        "tokens of replies": expected.completion_tokens,
        f"price in {plain(expected.currency)}": expected.money,
        "seconds of all questions": expected.seconds,
        "hours until all are answered": expected.hours,
    }
    for name, one in rows.items():
        if one is not None:
            print(f"  {name}: {_number(one.value)} ({_number(one.low)} to {_number(one.high)})")
    if expected.shares:
        shown = sorted(expected.shares.items(), key=lambda entry: -entry[1])
        print(f"  where a question spends its time: {', '.join(f'{name} {share:.0%}' for name, share in shown)}")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
