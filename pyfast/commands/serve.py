"""`pyfast serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from pyfast.commands.running import EMBEDDED, Filter, Limits, Llm, LlmOption, RerankName, RetrieverName, models
from pyfast.commands.terminal import pairs, values
from pyfast.errors import InputError


def serve(
    index: Annotated[
        list[str] | None,
        typer.Option(help="An index, or NAME=INDEX; repeatable. Requests that name no index use the first."),
    ] = None,
    llm: Llm = EMBEDDED,
    llm_option: LlmOption = None,
    system: Annotated[
        list[str] | None,
        typer.Option(help="A system to serve; repeatable. Without it: all systems that need no settings."),
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="A setting, as SYSTEM.NAME=VALUE; repeatable.")
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            help="The address at which the server listens. If other machines can reach it, set PYFAST_API_KEYS."
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="The port at which the server listens. 0: any free port.")
    ] = 8000,
    concurrency: Annotated[
        int, typer.Option(min=1, max=65_536, help="How many questions about one index are in progress at once.")
    ] = 64,
    budget: Limits = None,
    retriever: RetrieverName = "bm25",
    rerank: RerankName = "off",
    filter: Filter = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            help="A limit for requests, such as queue=100 (waiting questions) or seconds=60; repeatable.",
        ),
    ] = None,
    outage: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="How many minutes to wait for an LLM that answers no call. 0: reply with status 503 at once.",
        ),
    ] = 0.0,
    prompts: Annotated[
        Path | None, typer.Option(help="A TOML file with prompts that replace the systems' own.")
    ] = None,
    follow_ups: Annotated[
        Literal["off", "rewrite", "resolve"],
        typer.Option(
            help="What to do with later questions of a conversation, if the system answers only single"
            " questions. rewrite: the LLM rewrites each question so that it can be understood alone."
            " resolve: the LLM adds the names that the question leaves out. off: the questions stay"
            " unchanged."
        ),
    ] = "rewrite",
    jobs: Annotated[
        Path | None,
        typer.Option(
            help="A folder for the files and batches of clients. Without it, the server does not offer"
            " /v1/batches."
        ),
    ] = None,
    grace: Annotated[
        float,
        typer.Option(
            min=0.0, help="How many seconds the server waits for requests in progress when it is stopped."
        ),
    ] = 30.0,
) -> None:
    """Answer questions over HTTP, through an API like OpenAI's. API keys come from PYFAST_API_KEYS."""
    import pyfast.server.listen
    from pyfast.api.indexing import open_index
    from pyfast.api.telemetry import export_spans
    from pyfast.engine import dedicate_process

    settings = _by_system(pairs("--set", setting))
    if settings.keys() - set(system or ()):
        raise InputError(f"--set {min(settings.keys() - set(system or ()))}.*: name the system with --system too")
    paths = _indexes(index)
    indexes = {name: open_index(path, retriever, rerank, filter or ()) for name, path in paths.items()}
    dedicate_process()
    export_spans()
    pyfast.server.listen.serve(
        indexes or None,
        models(llm),
        llm_options=values(pairs("--llm-option", llm_option)),
        systems={name: settings.get(name, {}) for name in system} if system else None,
        host=host,
        port=port,
        concurrency=concurrency,
        budget=pairs("--budget", budget),
        outage=outage,
        prompts=prompts,
        follow_ups=follow_ups,
        limits=values(pairs("--limit", limit)),
        jobs=jobs,
        grace=grace,
    )


def _indexes(given: list[str] | None) -> dict[str, str]:
    """Return the folders of the indexes, by the indexes' names. An index that is given without a name gets
    the name of its folder."""
    indexes: dict[str, str] = {}
    for text in given or ():
        name, equals, path = text.partition("=")
        name, path = (name, path) if equals else (Path(text).resolve().name, text)
        if name in indexes:
            raise InputError(f"--index: the name {name!r} is given twice")
        indexes[name] = path
    return indexes


def _by_system(given: dict[str, str]) -> dict[str, dict[str, Any]]:
    by_system: dict[str, dict[str, Any]] = {}
    for text, value in given.items():
        system, dot, name = text.partition(".")
        if not dot:
            raise InputError(f"--set {text}: expected SYSTEM.NAME=VALUE")
        by_system.setdefault(system, {})[name] = value
    return by_system
