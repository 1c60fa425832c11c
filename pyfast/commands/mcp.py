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
    http: Annotated[bool, typer.Option("--http", help="Use HTTP, not standard input and output.")] = False,
    host: Annotated[str, typer.Option(help="With --http: an address of this machine.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65_535, help="With --http: the port.")] = 8001,
) -> None:
    """Give agents an index as tools (search, answer, read_source), through the Model Context Protocol."""
    import pyfast

    pyfast.serve_mcp(
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
