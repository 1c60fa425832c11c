"""`pyfast train`: one subcommand for each system that can be trained, each in its own file."""

from __future__ import annotations

import typer

from pyfast.commands.train_graph_convqa import graph_convqa
from pyfast.commands.train_hseq_iterator import hseq_iterator
from pyfast.commands.train_merge import merge

train = typer.Typer(no_args_is_help=True, help="Train the models of a system.")
train.command("graph-convqa")(graph_convqa)
train.command("hseq-iterator")(hseq_iterator)
train.command("merge")(merge)
