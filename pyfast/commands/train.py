"""`pyfast train`: one subcommand per system that learns, each in a file of its own."""

from __future__ import annotations

import typer

from pyfast.commands.train_graph_convqa import graph_convqa

train = typer.Typer(no_args_is_help=True, help="Train what a system learns.")
train.command("graph-convqa")(graph_convqa)
