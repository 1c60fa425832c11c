"""`pyfast mcp`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pyfast.commands.running import EMBEDDED, Limits, Llm, LlmOption, Setting, SystemName, models
from pyfast.commands.terminal import pairs, values


def mcp(
    index: Annotated[Path, typer.Argument(help="An index, made by `pyfast index`.")],
    system: SystemName = "n2n",
    llm: Llm = EMBEDDED,
    setting: Setting = None,
    llm_option: LlmOption = None,
    budget: Limits = None,
    http: Annotated[bool, typer.Option("--http", help="Use HTTP in place of standard input and output.")] = False,
    host: Annotated[str, typer.Option(help="With --http: the address at which the server listens.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=1, max=65_535, help="With --http: the port at which the server listens.")
    ] = 8001,
) -> None:
    """Offer an index to agents, as the tools search, answer and read_source of the Model Context Protocol
    (MCP)."""
    from pyfast.server.mcp import serve_mcp

    serve_mcp(
        index,
        models(llm),
        llm_options=values(pairs("--llm-option", llm_option)),
        system=system,
        settings=pairs("--set", setting),
        budget=pairs("--budget", budget),
        transport="http" if http else "stdio",
        host=host,
        port=port,
    )
