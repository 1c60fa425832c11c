"""`pyfast answer`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from pyfast.commands.running import (
    EMBEDDED,
    AcceptCode,
    Concurrency,
    Limit,
    Limits,
    Llm,
    LlmOption,
    MaxFailures,
    Outage,
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
    models,
    tell,
    watched,
)
from pyfast.commands.terminal import pairs, values


def answer(
    questions: Annotated[Path, typer.Argument(help="JSON lines, CSV or Parquet: `id`, `question` (or `turns`).")],
    run: Annotated[Path, typer.Option(help="The folder of the run. If it exists, the run resumes.")],
    index: Annotated[Path | None, typer.Option(help="An index; `direct` and `cot` need none.")] = None,
    system: SystemName = "n2n",
    llm: Llm = EMBEDDED,
    setting: Setting = None,
    prompts: Annotated[
        Path | None, typer.Option(help="A TOML file with prompts in place of the system's own.")
    ] = None,
    follow_ups: Annotated[
        Literal["off", "rewrite", "resolve"],
        typer.Option(help="What becomes of later turns before a system of single questions is asked."),
    ] = "off",
    llm_option: LlmOption = None,
    budget: Limits = None,
    response_cache: Annotated[
        Path | None, typer.Option(help="A folder for plans that follow from the question alone; runs share it.")
    ] = None,
    shared_updates: Annotated[
        bool, typer.Option("--shared-updates", help="subqrag: what a question learns, others see at once.")
    ] = False,
    retriever: RetrieverName = "bm25",
    rerank: RerankName = "off",
    limit: Limit = None,
    sample: Sample = None,
    temperature: Temperature = 0.0,
    seed: Seed = 0,
    concurrency: Concurrency = 64,
    outage: Outage = 30.0,
    max_failures: MaxFailures = None,
    sync: Sync = "normal",
    keep_prompts: Annotated[
        bool,
        typer.Option("--keep-prompts/--no-keep-prompts", help="Keep what the LLM was asked in the run's folder."),
    ] = True,
    restart: Restart = False,
    accept_code: AcceptCode = False,
    retry_failed: RetryFailed = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Fail a question whose system would go on without an answer."),
    ] = False,
) -> None:
    """Answer questions, or resume a run."""
    import pyfast

    settings = {**pairs("--set", setting), **({"shared_updates": "on"} if shared_updates else {})}
    llms = models(llm)
    options, limits = values(pairs("--llm-option", llm_option)), pairs("--budget", budget)
    done = watched(
        run,
        llms,
        lambda on_event, stop: pyfast.answer(
            questions,
            index=None if index is None else pyfast.open_index(index, retriever, rerank),
            llm=llms,
            llm_options=options,
            system=system,
            settings=settings,
            prompts=prompts,
            follow_ups=follow_ups,
            run=run,
            limit=limit,
            sample=sample,
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
        ),
    )
    tell(done)
