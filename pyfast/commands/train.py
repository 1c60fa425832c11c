"""`pyfast train`: graph-convqa, hseq-iterator, cascade, merge. `pyfast distill`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pyfast.commands.arguments import RunFolders, pairs, with_options
from pyfast.commands.terminal import console, plain, say, show_table
from pyfast.utils.options import DistillOptions, GraphConvqaOptions, HseqOptions, Option
from pyfast.utils.text_forms import counted

if TYPE_CHECKING:
    from pyfast.api.training import OnStep, Training
    from pyfast.training.loop import Estimate, Point

app = typer.Typer(no_args_is_help=True, help="Train a system's models.")

_Model = Annotated[Path, typer.Option(help="The folder of a language model in safetensors format.")]
_Out = Annotated[Path, typer.Option(help="The folder for the trained model; if it exists, the training resumes.")]


@app.command()
@with_options
def graph_convqa(
    conversations: Path, *, index: Path, model: _Model, out: _Out, options: GraphConvqaOptions
) -> None:
    """Train graph_convqa's encoder and language model on conversations.

    Args:
        conversations: JSON lines with `id` and `turns`, each with `answers`.
        index: The index with the evidence.
    """
    from pyfast.api.training import train_graph_convqa

    with _progress() as on_step:
        training = train_graph_convqa(
            conversations, index=index, model=model, out=out, options=options, on_step=on_step
        )
    _tell(training)


@app.command()
@with_options
def hseq_iterator(
    sources: list[str],
    model: _Model,
    out: _Out,
    options: HseqOptions,
    *,
    setting: Annotated[list[str] | None, Option(flag="--set")] = None,
    head: str | None = None,
    estimate: bool = False,
) -> None:
    """Train the hseq iterator on questions with gold answers, and write the adapter to OUT/adapter.

    Args:
        sources: A file of questions with gold answers, and their index, as QUESTIONS=INDEX.
        setting: An hseq setting that later runs will use, as NAME=VALUE; repeatable.
        head: With --set guidance=head: the LLM that writes the plan for picking segments, as in `pyfast answer`.
        estimate: Estimate time and memory without training.
    """
    from pyfast.api.training import estimate_hseq_iterator, train_hseq_iterator

    given, settings = pairs("SOURCES", sources), pairs("--set", setting)
    if estimate:
        print(estimate_hseq_iterator(given, model=model, settings=settings, options=options))
        return
    train = partial(train_hseq_iterator, given, model=model, out=out, settings=settings, head=head)
    with _progress() as on_step:
        training = train(options=options, on_step=on_step, on_estimate=_print_estimate)
    _tell(training)


@with_options
def distill(
    runs: RunFolders,
    out: _Out,
    options: DistillOptions,
    *,
    model: Path | None = None,
    gold: Path | None = None,
    not_in: list[Path] | None = None,
) -> None:
    """Train a model (LoRA) on the prompts and replies of correctly answered questions in finished runs.

    Args:
        model: The folder of the model to train, in safetensors format. Without --model, the command only
            writes the examples.
        gold: The gold answers, as in `pyfast evaluate`; by default those of the run's questions.
        not_in: A file of test questions or their gold answers, none of which may be in the runs; repeatable.
    """
    import pyfast.api.training

    with _progress() as on_step:
        teach = partial(pyfast.api.training.distill, runs, out=out, model=model, gold=gold, not_in=not_in or ())
        learned = teach(options=options, on_step=on_step, on_estimate=_print_estimate)
    if os.environ.get("RANK", "0") != "0":
        return
    show_table(["run", "taken", "questions"], [(run, *counts) for run, counts in learned.runs.items()])
    heads = ["prompt", "examples", "held out", *(["loss before", "after"] if learned.losses else ())]
    losses = {name: [f"{loss:.3f}" for loss in pair] for name, pair in learned.losses.items()}
    others = ["", ""] if losses else []
    rows = [(name, *counts, *losses.get(name, others)) for name, counts in learned.prompts.items()]
    show_table(heads, rows)
    for why, count in learned.left_out.items():
        say(plain(f"{counted(count, 'example')} left out because {why}"))
    if learned.training is not None:
        _tell(learned.training)


@app.command()
@with_options
def cascade(runs: RunFolders, *, gold: Path | None = None, min_f1: float = 1.0) -> None:
    """Fit cascade's confidence to runs with gold answers, and print the setting `weights` for later runs. The runs
    must have used --set sure=1, which makes every system answer every question.

    Args:
        gold: The gold answers, as in `pyfast evaluate`; by default those of the run's questions.
        min_f1: The lowest F1 at which an answer counts as correct.
    """
    from pyfast.api.training import calibrate_cascade

    found = calibrate_cascade(list(runs), gold=gold, min_f1=min_f1)
    say(f"{found.right} of {found.answers} answers are correct")
    say(f"mean log loss: {found.loss:.3f} (with the same confidence for all answers: {found.constant_loss:.3f})")
    print(f"--set weights={','.join(f'{weight:.3f}' for weight in found.weights)}")


@app.command()
@with_options
def merge(model: Path, adapter: Path, out: Path) -> None:
    """Merge a trained adapter into its model, for programs that cannot load adapters.

    Args:
        model: The folder of the model that the adapter was trained for.
        adapter: The folder of the trained adapter, in PEFT format.
        out: The folder to write.
    """
    from pyfast.api.training import merge_adapter

    print(merge_adapter(model, adapter, out))


@contextmanager
def _progress() -> Iterator[OnStep]:
    """Show a progress bar with the loss during training, and yield a function to call after each step."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    screen = console()
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("loss {task.fields[loss]}"), TimeRemainingColumn())
    with Progress(*columns, console=screen, disable=not screen.is_terminal) as bars:
        bar = bars.add_task("", total=None, loss="")

        def on_step(point: Point, total: int) -> None:
            bars.update(bar, total=total, completed=point.step + 1, loss=f"{point.loss:.3f}")

        yield on_step


def _print_estimate(estimate: Estimate) -> None:
    console().print(str(estimate))


def _tell(training: Training) -> None:
    """Print how the training ended and where its result is. If several processes train together, only the first
    one prints."""
    if os.environ.get("RANK", "0") != "0":
        return
    print(f"{counted(len(training.curve), 'step')}, loss {training.loss:.3f}; {training.path}")
