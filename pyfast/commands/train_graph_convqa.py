"""`pyfast train graph-convqa`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from pyfast.commands.training_options import (
    Accumulation,
    Epochs,
    LearningRate,
    LoraAlpha,
    LoraRank,
    Minutes,
    Model,
    Out,
    Seed,
)
from pyfast.commands.training_progress import progress, tell


def graph_convqa(
    conversations: Annotated[
        Path, typer.Argument(help="JSON lines with `id` and `turns`. Each turn has `answers`.")
    ],
    index: Annotated[Path, typer.Option(help="The index with the evidence.")],
    model: Model,
    out: Out,
    graph: Annotated[bool, typer.Option(help="Whether to train with the evidence graph, or on text only.")] = True,
    layers: Annotated[int, typer.Option(min=1, help="Number of layers of the encoder.")] = 2,
    heads: Annotated[
        int,
        typer.Option(
            min=1, help="Number of attention heads in each layer; the hidden size is divided among them."
        ),
    ] = 2,
    dropout: Annotated[float, typer.Option(min=0.0, max=0.99, help="Dropout of the encoder's attention.")] = 0.5,
    residual: Annotated[
        bool,
        typer.Option(
            help="Add the encoder's output to the token embeddings. Off: the output replaces the"
            " embeddings, as in the paper."
        ),
    ] = True,
    memory: Annotated[
        Literal["on", "off", "random"],
        typer.Option(
            help="Which evidence of earlier turns takes the place of the worst-ranked evidence of a turn."
            " on: the items that are most similar to the query. random: random items. off: none."
        ),
    ] = "on",
    memory_share: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="The share of a turn's evidence that --memory may replace.")
    ] = 1 / 3,
    passages: Annotated[
        int,
        typer.Option(
            min=1,
            help="Number of passages that the search for a turn finds. Their evidence items are then ranked.",
        ),
    ] = 50,
    k: Annotated[
        int, typer.Option(min=1, help="Number of evidence items that a turn gets: the best-ranked items.")
    ] = 20,
    max_prompt_tokens: Annotated[int, typer.Option(min=128, help="Maximum tokens of a prompt.")] = 1024,
    epochs: Epochs = 1,
    learning_rate: LearningRate = 5e-5,
    accumulation: Accumulation = 4,
    lora_rank: LoraRank = 128,
    lora_alpha: LoraAlpha = 32,
    seed: Seed = 0,
    minutes: Minutes = None,
) -> None:
    """Train graph_convqa's encoder and language model on conversations."""
    from pyfast.api.training import train_graph_convqa

    with progress() as on_step:
        training = train_graph_convqa(
            conversations,
            index=index,
            model=model,
            out=out,
            graph=graph,
            layers=layers,
            heads=heads,
            dropout=dropout,
            residual=residual,
            memory=memory,
            memory_share=memory_share,
            passages=passages,
            k=k,
            max_prompt_tokens=max_prompt_tokens,
            epochs=epochs,
            learning_rate=learning_rate,
            accumulation=accumulation,
            lora_rank=lora_rank,
            lora_alpha=lora_alpha,
            seed=seed,
            minutes=minutes,
            on_step=on_step,
        )
    tell(training)
