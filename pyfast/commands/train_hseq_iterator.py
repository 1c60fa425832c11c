"""`pyfast train hseq-iterator`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from pyfast.commands.terminal import console, numbers, pairs
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

Precision = Literal["float32", "bfloat16"]


def hseq_iterator(
    sources: Annotated[
        list[str], typer.Argument(help="QUESTIONS=INDEX: questions with gold answers, and their index.")
    ],
    model: Model,
    out: Out,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="A setting of hseq, NAME=VALUE. Give the settings that later runs will use; repeatable."
        ),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(
            help="With --set guidance=head: the LLM that makes the plans, written like --llm of `pyfast answer`."
        ),
    ] = None,
    weights: Annotated[
        str,
        typer.Option(
            help=(
                "The weights of the sources, such as 2,1. The number of examples from a source is in"
                " proportion to its weight. By default, all weights are equal."
            )
        ),
    ] = "",
    size: Annotated[int, typer.Option(min=1, help="Number of examples from all sources together.")] = 512,
    max_positives: Annotated[int, typer.Option(min=1, help="Maximum number of positives for a question.")] = 4,
    lexical_weight: Annotated[
        float, typer.Option(min=0, max=1, help="Weight of positives that only share words with the question.")
    ] = 0.3,
    verdict_weight: Annotated[
        float, typer.Option(min=0.0, help="Weight of the tokens that say whether the evidence is sufficient.")
    ] = 1.0,
    epochs: Epochs = 1,
    learning_rate: LearningRate = 2e-5,
    accumulation: Accumulation = 16,
    batch: Annotated[
        int, typer.Option(min=1, help="Maximum number of examples that go through the model together.")
    ] = 1,
    precision: Annotated[Precision, typer.Option(help="Precision of the model's own weights.")] = "float32",
    checkpointing: Annotated[
        bool,
        typer.Option(
            "--checkpointing",
            help="Do not store the layers' outputs, but compute them again for the gradient. This needs"
            " less memory and more time.",
        ),
    ] = False,
    estimate: Annotated[bool, typer.Option("--estimate", help="Estimate time and memory; train nothing.")] = False,
    lora_rank: LoraRank = 16,
    lora_alpha: LoraAlpha = 32,
    seed: Seed = 0,
    minutes: Minutes = None,
) -> None:
    """Train the iterator of hseq on questions with gold answers. The trained adapter is in OUT/adapter."""
    from pyfast.api.training import estimate_hseq_iterator, train_hseq_iterator

    if estimate:
        cost = estimate_hseq_iterator(
            pairs("SOURCES", sources),
            model=model,
            settings=pairs("--set", setting),
            weights=numbers("--weights", weights),
            size=size,
            max_positives=max_positives,
            lexical_weight=lexical_weight,
            epochs=epochs,
            accumulation=accumulation,
            batch=batch,
            precision=precision,
            checkpointing=checkpointing,
            lora_rank=lora_rank,
            seed=seed,
        )
        print(cost)
        return
    with progress() as on_step:
        training = train_hseq_iterator(
            pairs("SOURCES", sources),
            model=model,
            out=out,
            settings=pairs("--set", setting),
            head=head,
            weights=numbers("--weights", weights),
            size=size,
            max_positives=max_positives,
            lexical_weight=lexical_weight,
            verdict_weight=verdict_weight,
            epochs=epochs,
            learning_rate=learning_rate,
            accumulation=accumulation,
            batch=batch,
            precision=precision,
            checkpointing=checkpointing,
            lora_rank=lora_rank,
            lora_alpha=lora_alpha,
            seed=seed,
            minutes=minutes,
            on_step=on_step,
            on_estimate=lambda cost: console().print(str(cost)),
        )
    tell(training)
