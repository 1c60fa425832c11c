"""`pyfast train graph-convqa`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from pyfast.commands.training_options import (
    Accumulation,
    Alpha,
    Epochs,
    LearningRate,
    Minutes,
    Model,
    Out,
    Rank,
    Seed,
)
from pyfast.commands.training_progress import progress, tell


def graph_convqa(
    conversations: Annotated[Path, typer.Argument(help="JSON lines with `id` and `turns`, which have `answers`.")],
    index: Annotated[Path, typer.Option(help="The index that evidence comes from.")],
    model: Model,
    out: Out,
    graph: Annotated[bool, typer.Option(help="Without: the text-only fine-tune.")] = True,
    residual: Annotated[
        bool, typer.Option(help="Nodes keep their tokens' embeddings; without is the paper's.")
    ] = True,
    memory: Annotated[Literal["on", "off", "random"], typer.Option(help="The evidence memory.")] = "on",
    units: Annotated[int, typer.Option(min=1, help="Units whose pieces are ranked.")] = 50,
    k: Annotated[int, typer.Option(min=1, help="Pieces of evidence of a turn.")] = 20,
    room: Annotated[int, typer.Option(min=128, help="Tokens of a prompt, at most.")] = 1024,
    epochs: Epochs = 1,
    learning_rate: LearningRate = 5e-5,
    accumulation: Accumulation = 4,
    rank: Rank = 128,
    alpha: Alpha = 32,
    seed: Seed = 0,
    minutes: Minutes = None,
) -> None:
    """Train graph_convqa's encoder and language model on conversations."""
    from pyfast.engine import check_questions, read_questions
    from pyfast.retrieval import Index
    from pyfast.training.graph_convqa import Recipe, train
    from pyfast.training.loop import Schedule

    check_questions(conversations)
    turns = list(read_questions(conversations))
    recipe = Recipe(
        graph=graph, units=units, k=k, memory=memory, room=room, residual=residual, rank=rank, alpha=alpha
    )
    schedule = Schedule(epochs=epochs, accumulation=accumulation, learning_rate=learning_rate, seed=seed)
    with progress(minutes) as (stop, told):
        curve = train(Index(index), turns, model, out, recipe, schedule, stop, told)
    tell(curve, out)
