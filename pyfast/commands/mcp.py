"""`pyfast mcp`."""

from __future__ import annotations

from typing import Annotated

import typer

from pyfast.commands.arguments import Asked, IndexFolder, with_options


@with_options
def mcp(
    index: IndexFolder,
    asked: Asked,
    http: Annotated[bool, typer.Option("--http", help="Use HTTP in place of standard input and output.")] = False,
    host: Annotated[str, typer.Option(help="With --http: the address at which the server listens.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=1, max=65_535, help="With --http: the port at which the server listens.")
    ] = 8001,
) -> None:
    """Offer an index to agents, as the tools search, answer and read_source of the Model Context Protocol
    (MCP)."""
    import pyfast

    pyfast.serve_mcp(index, transport="http" if http else "stdio", host=host, port=port, **asked.given)
