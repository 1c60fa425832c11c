"""`pyfast train hseq-iterator`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pyfast.commands.terminal import pairs
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


def hseq_iterator(
    sources: Annotated[list[str], typer.Argument(help="QUESTIONS=INDEX: gold questions, and where they look.")],
    model: Model,
    out: Out,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=VALUE of hseq: as the system is going to run.")
    ] = None,
    weights: Annotated[str, typer.Option(help="Of the sources in the mixture, such as 2,1; else alike.")] = "",
    size: Annotated[int, typer.Option(min=1, help="Steps in the mixture.")] = 512,
    max_positives: Annotated[int, typer.Option(min=1, help="Positives of a question, at most.")] = 4,
    lexical_weight: Annotated[float, typer.Option(min=0, max=1, help="Weight of positives by words alone.")] = 0.3,
    verdict_weight: Annotated[float, typer.Option(min=0.0, help="Weight of the verdict's tokens.")] = 1.0,
    epochs: Epochs = 1,
    learning_rate: LearningRate = 2e-5,
    accumulation: Accumulation = 16,
    lora_rank: LoraRank = 16,
    lora_alpha: LoraAlpha = 32,
    seed: Seed = 0,
    minutes: Minutes = None,
) -> None:
    """Train HSEQ's iterator on questions with gold answers; OUT/adapter is what it learnt."""
    from pyfast.errors import InputError
    from pyfast.retrieval import Index
    from pyfast.systems import load_system
    from pyfast.systems.hseq.system import Settings
    from pyfast.training.hseq_iterator import ADAPTER, Recipe, train
    from pyfast.training.loop import Schedule
    from pyfast.training.weak_positives import read_gold

    settings = load_system("hseq").configure({"guidance": "template", **pairs("--set", setting)})
    assert isinstance(settings, Settings)
    read = [(Index(Path(index)), read_gold(Path(path))) for path, index in pairs("SOURCES", sources).items()]
    try:
        shares = tuple(float(share) for share in weights.split(",")) if weights else ()
    except ValueError:
        raise InputError(f"--weights {weights}: expected numbers, such as 2,1") from None
    recipe = Recipe(
        settings=settings, max_positives=max_positives, lexical_weight=lexical_weight,
        verdict_weight=verdict_weight, size=size, weights=shares, lora_rank=lora_rank, lora_alpha=lora_alpha,
    )  # fmt: skip
    schedule = Schedule(
        epochs=epochs, accumulation=accumulation, learning_rate=learning_rate,
        rate="cosine", warmup=0.03, seed=seed,
    )  # fmt: skip
    with progress(minutes) as (stop, on_step):
        curve = train(read, model, out, recipe, schedule, stop, on_step)
    tell(curve, out / ADAPTER)
