"""`pyfast serve` and `pyfast mcp`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pyfast.commands.arguments import (
    OF_ONE_QUESTION,
    Asked,
    IndexFolder,
    Models,
    Searched,
    pairs,
    values,
    with_options,
)
from pyfast.commands.terminal import with_times
from pyfast.errors import InputError
from pyfast.utils.options import Hardware, Option, ServerOptions


@with_options
def serve(
    models: Annotated[Models, "llm", "llm_options", "budget"],
    searched: Searched,
    hardware: Hardware,
    options: ServerOptions,
    *,
    index: list[str] | None = None,
    system: list[str] | None = None,
    setting: Annotated[list[str] | None, Option(flag="--set")] = None,
    host: str = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65_535)] = 8000,
    concurrency: Annotated[int, Option(min=1, max=65_536)] = 64,
    limit: list[str] | None = None,
) -> None:
    """Answer questions over HTTP, with an API compatible with OpenAI's. The environment variable PYFAST_API_KEYS
    holds the API keys.

    Args:
        index: An index, or NAME=INDEX; repeatable. Requests that name no index use the first one.
        system: A system to serve; repeatable. Default: all systems that need no settings.
        setting: A setting, as SYSTEM.NAME=VALUE; repeatable.
        host: The address on which the server listens. If other machines can reach it, set PYFAST_API_KEYS or
            --keys.
        port: The port on which the server listens. 0: any free port.
        concurrency: How many questions to process at once per index.
        limit: A limit for requests, such as queue=100 (waiting questions) or seconds=60; repeatable.
    """
    import pyfast.server.http_server
    from pyfast.api.telemetry import export_spans
    from pyfast.engine import dedicate_process

    settings = _by_system(pairs("--set", setting))
    if settings.keys() - set(system or ()):
        raise InputError(f"--set {min(settings.keys() - set(system or ()))}.*: add this system with --system")
    # The server opens the indexes itself, after `dedicate_process`; only then can it close them after a new
    # commit.
    indexes = {name: partial(searched.open, path, hardware) for name, path in _indexes(index).items()}
    dedicate_process()
    export_spans()
    with_times()
    pyfast.server.http_server.serve(
        indexes or None,
        systems={name: settings.get(name, {}) for name in system} if system else None,
        host=host,
        port=port,
        concurrency=concurrency,
        limits=values("--limit", limit),
        options=options,
        **models.given,
    )


def _indexes(given: list[str] | None) -> dict[str, str]:
    """Return the index folders by index name. An index given without a name is named after its folder."""
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


@with_options
def mcp(
    index: IndexFolder,
    asked: Annotated[Asked, *OF_ONE_QUESTION],
    searched: Searched,
    hardware: Hardware,
    *,
    http: bool = False,
    host: str = "127.0.0.1",
    port: Annotated[int, Option(min=1, max=65_535)] = 8001,
) -> None:
    """Make an index available to agents over the Model Context Protocol (MCP), with the tools search, answer and
    read_source.

    Args:
        http: Use HTTP instead of standard input and output.
        host: With --http: the address on which the server listens.
        port: With --http: the port on which the server listens.
    """
    import pyfast.server.mcp

    pyfast.server.mcp.serve_mcp(
        searched.open(index, hardware), transport="http" if http else "stdio", host=host, port=port, **asked.given
    )
