"""`pyfast train graph-convqa`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from pyfast.commands.training_progress import progress


def graph_convqa(
    conversations: Annotated[Path, typer.Argument(help="JSON lines with `id` and `turns`, which have `answers`.")],
    index: Annotated[Path, typer.Option(help="The index that evidence comes from.")],
    model: Annotated[Path, typer.Option(help="The folder of a language model in safetensors.")],
    out: Annotated[Path, typer.Option(help="The folder of the training; one that was begun goes on.")],
    graph: Annotated[bool, typer.Option(help="Without: the text-only fine-tune.")] = True,
    residual: Annotated[
        bool, typer.Option(help="Nodes keep their tokens' embeddings; without is the paper's.")
    ] = True,
    memory: Annotated[Literal["on", "off", "random"], typer.Option(help="The evidence memory.")] = "on",
    units: Annotated[int, typer.Option(min=1, help="Units whose pieces are ranked.")] = 50,
    k: Annotated[int, typer.Option(min=1, help="Pieces of evidence of a turn.")] = 20,
    room: Annotated[int, typer.Option(min=128, help="Tokens of a prompt, at most.")] = 1024,
    epochs: Annotated[int, typer.Option(min=1, help="How often each turn is learnt from.")] = 1,
    learning_rate: Annotated[float, typer.Option(min=0.0, help="Adam's.")] = 5e-5,
    accumulation: Annotated[int, typer.Option(min=1, help="Turns of a step.")] = 4,
    rank: Annotated[int, typer.Option(min=1, help="Of LoRA's updates.")] = 128,
    alpha: Annotated[int, typer.Option(min=1, help="Of LoRA's updates.")] = 32,
    seed: Annotated[int, typer.Option(min=0, help="Of order, weights and dropout.")] = 0,
    minutes: Annotated[float | None, typer.Option(min=0.0, help="Stop then; the same command goes on.")] = None,
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
    last = curve[-10:]
    print(f"{len(curve)} steps, loss {sum(point.loss for point in last) / max(len(last), 1):.3f}; {out}")
