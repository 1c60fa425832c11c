"""The command line, which puts the commands of the other files in this folder together."""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
from typing import Annotated, Any

import typer

from pyfast.commands.answer import answer, estimate
from pyfast.commands.ask import ask
from pyfast.commands.checks import check, doctor, systems, verify
from pyfast.commands.data import app as data
from pyfast.commands.evaluation import compare, evaluate, evaluate_retrieval, export
from pyfast.commands.experiments import bench, experiment
from pyfast.commands.index import app as corpus
from pyfast.commands.index import index
from pyfast.commands.judge import judge, questions
from pyfast.commands.knowledge import app as knowledge
from pyfast.commands.runs import report, show, status, view
from pyfast.commands.serve import mcp, serve
from pyfast.commands.terminal import OnStderr, plain
from pyfast.commands.train import app as train
from pyfast.commands.train import distill
from pyfast.errors import PyfastError
from pyfast.utils.extras import explained
from pyfast.utils.version import __version__

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


# The class that typer raises for an invalid command line: click's class, or the one in typer's own copy of click.
_UsageError: Any = typer.BadParameter.__base__


def main() -> None:
    """Run the command line. Errors that pyfast raises deliberately are printed as one line on stderr.

    The exit status is 1 after such an error, and 2 for an invalid command line. A command may also end with status
    2 if it could not read everything.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # A path may contain bytes that are not UTF-8.
        sys.stdout.reconfigure(errors="backslashreplace")
    log = logging.getLogger("pyfast")
    log.setLevel(logging.INFO)
    log.addHandler(OnStderr())
    # The `mcp` library adds a handler to the root logger, which would print each record a second time.
    log.propagate = False
    if not sys.stderr.isatty():  # run.toml also contains the profile. In a file or a pipe, stderr is for errors.
        logging.getLogger("pyfast.profile").setLevel(logging.WARNING)
    # The current folder comes last, so that MODULE:NAME finds a user's module and no module hides an installed
    # one.
    sys.path.append(os.getcwd())
    # SIGTERM ends a command in the same way as Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        with explained():
            sys.exit(app(prog_name="pyfast", standalone_mode=False))
    except (PyfastError, OSError) as error:
        told = ""
        if isinstance(error, OSError) and error.strerror:  # Its own text begins with, for example, [Errno 28].
            told = f"{os.fsdecode(error.filename)}: {error.strerror}" if error.filename else error.strerror
        print("pyfast:", plain(told or error), file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("pyfast: stopped", file=sys.stderr)
        sys.exit(130)
    except _UsageError as error:
        if message := error.format_message():  # There is no message if the command printed its help.
            command = error.ctx.command_path if error.ctx else "pyfast"
            print(f"pyfast: {message} (see `{command} --help`)", file=sys.stderr)
        sys.exit(2)


def _version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


_ANSWERING = (index, answer, ask, serve, mcp, status, export, estimate)
_COMPARING = (evaluate, evaluate_retrieval, compare, bench, experiment, report, view, show, questions, judge)
_CHECKING = (systems, check, verify, doctor)
for command in (*_ANSWERING, *_COMPARING, distill, *_CHECKING):
    app.command()(command)
for name, commands in {"corpus": corpus, "train": train, "knowledge": knowledge, "data": data}.items():
    app.add_typer(commands, name=name)


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version of pyfast.")
    ] = False,
) -> None:
    """Multi-hop question answering over text, tables and knowledge graphs."""


if __name__ == "__main__":
    main()
