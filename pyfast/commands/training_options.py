"""The options that all training commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[Path, typer.Option(help="The folder of a language model in safetensors.")]
Out = Annotated[Path, typer.Option(help="The folder of the training. If it exists, the training resumes.")]
Epochs = Annotated[int, typer.Option(min=1, help="How often the training goes through all examples.")]
LearningRate = Annotated[float, typer.Option(min=0.0, help="The highest learning rate of Adam.")]
Accumulation = Annotated[int, typer.Option(min=1, help="Number of examples for each step of the optimizer.")]
LoraRank = Annotated[int, typer.Option(min=1, help="The rank of LoRA's updates.")]
LoraAlpha = Annotated[int, typer.Option(min=1, help="The scale of LoRA's updates.")]
Seed = Annotated[
    int, typer.Option(min=0, help="The seed for the order of examples, the initial weights and the dropout.")
]
Minutes = Annotated[
    float | None,
    typer.Option(min=0.0, help="Stop after this many minutes; to resume the training, repeat the command."),
]
