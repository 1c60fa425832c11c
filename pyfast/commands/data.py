"""`pyfast data`."""

from __future__ import annotations

from pathlib import Path

import typer

from pyfast.commands.arguments import with_options
from pyfast.utils.text_forms import counted

app = typer.Typer(no_args_is_help=True, help="Convert published data sets.")


@app.callback()
def data() -> None:
    """Convert published data sets."""


@app.command()
@with_options
def convert(name: str, source: Path, *, out: Path) -> None:
    """Convert a data set, as its authors publish it, into a corpus, questions and gold answers.

    Args:
        name: hotpotqa, 2wiki, musique, hybridqa, metaqa, tatqa, convmix, ottqa, nq, triviaqa, popqa, hipporag,
            beir or flashrag.
        source: The question file, or the folder of the download.
        out: The folder to create.
    """
    import pyfast.api.evaluation

    made = pyfast.api.evaluation.convert(name, source, out)
    corpus = made.no_corpus or f"{counted(made.documents, 'document')} in {made.corpus}"
    gold = "no gold answers" if made.gold is None else f"gold answers in {made.gold}"
    print(f"{counted(made.count, 'question')} in {made.questions}; {gold}; {corpus}")
    for note in made.notes:
        print(note)
