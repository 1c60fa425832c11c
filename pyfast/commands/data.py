"""`pyfast data`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Published data sets.")


@app.callback()
def data() -> None:
    """Published data sets."""


@app.command()
def convert(
    name: Annotated[
        str,
        typer.Argument(
            help="hotpotqa, 2wiki, musique, hybridqa, metaqa, tatqa, convmix, ottqa, nq, triviaqa, popqa,"
            " hipporag, beir or flashrag."
        ),
    ],
    source: Annotated[Path, typer.Argument(help="The file of questions, or the folder of the download.")],
    out: Annotated[Path, typer.Option(help="The folder to make.")],
) -> None:
    """Convert a data set from its authors' files into a corpus, questions and gold answers."""
    import pyfast.api.evaluation

    made = pyfast.api.evaluation.convert(name, source, out)
    corpus = made.no_corpus or f"{made.documents} documents in {made.corpus}"
    gold = "no answers" if made.gold is None else f"answers in {made.gold}"
    print(f"{made.count} questions in {made.questions}; {gold}; {corpus}")
    for note in made.notes:
        print(note)
