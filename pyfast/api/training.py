"""Train the models of two systems (graph_convqa's encoder and language model, and hseq's iterator), or teach any
system's model from finished runs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from pyfast.api.answer import answer
from pyfast.api.index import index_of
from pyfast.api.models import GivenLLM
from pyfast.api.run import GoldLike, Run, gold_of, questions_of, report_of, run_of, stored
from pyfast.engine import Record, questions_in, recorded_value
from pyfast.engine.configuration import recorded_path
from pyfast.errors import InputError
from pyfast.evaluation.evaluate import evaluate as score_answers
from pyfast.evaluation.gold import read_gold as read_gold_answers
from pyfast.evaluation.metrics import normalise
from pyfast.retrieval import Index
from pyfast.systems import load_system
from pyfast.systems.confidence import Calibration, attempts_of, calibrated, features_of
from pyfast.systems.hseq.planner import PLANNER
from pyfast.systems.hseq.system import Settings
from pyfast.utils.extras import explained
from pyfast.utils.options import (
    DISTILL_DEFAULTS,
    GRAPH_CONVQA_DEFAULTS,
    HSEQ_DEFAULTS,
    AdapterOptions,
    DistillOptions,
    GraphConvqaOptions,
    HseqOptions,
)

if TYPE_CHECKING:
    from pyfast.systems.hseq.training import Recipe
    from pyfast.systems.hseq.weak_positives import Gold
    from pyfast.training.loop import Estimate, Point, Schedule

OnStep = Callable[["Point", int], None]
"""A function called after each training step with the step's `Point` (loss, gradient norm, seconds) and the total
number of steps"""
OnEstimate = Callable[["Estimate"], None]
"""A function called with an estimate of the time and memory of the remaining training"""
_LAST = 10


@dataclass(frozen=True, slots=True)
class Training:
    """The result of a training."""

    path: Path
    """The folder with the trained weights"""
    curve: list[Point]
    """For each step, its loss, its gradient norm, and how many seconds it took"""

    @property
    def loss(self) -> float:
        """The mean loss of the last ten steps."""
        last = self.curve[-_LAST:]
        return sum(point.loss for point in last) / max(len(last), 1)


@explained()
def train_graph_convqa(
    conversations: str | Path,
    *,
    index: Index | str | Path,
    model: str | Path,
    out: str | Path,
    options: GraphConvqaOptions = GRAPH_CONVQA_DEFAULTS,
    on_step: OnStep | None = None,
) -> Training:
    """Train graph_convqa's encoder and language model on conversations (sections 4.6 and 5, table 4 of its paper).

    Args:
        conversations: A JSON lines file with `id` and `turns`, each with `answers`.
        index: The index with the evidence, or its folder.
        model: The folder of a language model in safetensors.
        out: The folder of the training. To resume an interrupted training, call the function again with the same
            arguments.
        options: What to train, and how.
        on_step: A function to call after each step with the step's `Point` (its loss, gradient norm and time) and
            the total number of steps.

    Returns:
        The training, with its curve. The folder `out` contains the encoder, if `graph` is True, and its subfolder
        `model` the language model, with the LoRA updates merged into it. Pass `out` to the system as its setting
        `trained`.

    Raises:
        InputError: The conversations or the model cannot be read, or `out` contains another training.
        RunError: The loss became infinite or NaN.

    Example:
        >>> from pyfast.api.training import train_graph_convqa
        >>> training = train_graph_convqa("CONVERSATIONS.jsonl", index="IDX", model="MODEL", out="TRAINED")
        >>> print(len(training.curve), "steps, loss", training.loss)
    """
    from pyfast.systems.graph_convqa.training import Recipe, train
    from pyfast.training.loop import Schedule

    recipe, schedule = options.part(Recipe), options.part(Schedule)
    turns = list(questions_in(Path(conversations)).read())
    curve = train(
        index_of(index),
        turns,
        Path(model),
        Path(out),
        recipe,
        schedule,
        _over(options.minutes),
        on_step or _ignore,
    )
    return Training(Path(out), curve)


@explained()
def train_hseq_iterator(
    sources: Mapping[str | Path, Index | str | Path] | Mapping[str, str],
    *,
    model: str | Path,
    out: str | Path,
    settings: Mapping[str, Any] | None = None,
    head: GivenLLM | None = None,
    options: HseqOptions = HSEQ_DEFAULTS,
    on_step: OnStep | None = None,
    on_estimate: OnEstimate | None = None,
) -> Training:
    """Train hseq's iterator on questions with gold answers (section 4.1 and appendix A.3 of its paper).

    The training runs on a GPU if the machine has one, otherwise on the CPU. To train on several devices,
    start the program with `accelerate launch --num_processes N`, which runs it in N processes. Each process
    computes its share of every step, and the first process writes `out`.

    Args:
        sources: A mapping from each question file with gold answers to its index, or to the index's folder.
        model: The folder of a language model in safetensors.
        out: The folder of the training. To resume an interrupted training, call the function again
            with the same arguments.
        settings: The hseq settings that later runs will use, by name. The default of `guidance` is `template`.
        head: The model that writes the guidance if `guidance` is `head`, given like `llm` in `pyfast.answer`. It
            does so in a run in the folder `guidance` of `out`, which can be resumed like any other run.
        options: What to train, and how.
        on_step: A function to call after each step with the step's `Point` (its loss, gradient norm and time) and
            the total number of steps.
        on_estimate: A function to call before the first step with an estimate, made from trial steps, of the time
            and memory of the remaining steps.

    Returns:
        The training, with its curve. Its `path` is the folder of the trained adapter, in PEFT format.

    Raises:
        InputError: A source or the model cannot be read, a setting is unknown, or `out` contains another training.
        RunError: The loss became infinite or NaN.

    Example:
        >>> import pyfast
        >>> from pyfast.api.training import train_hseq_iterator
        >>> options = pyfast.HseqOptions(size=16)
        >>> training = train_hseq_iterator({"QUESTIONS.jsonl": "IDX"}, model="MODEL", out="OUT", options=options)
        >>> print(training.path)
    """
    from pyfast.systems.hseq.training import train
    from pyfast.training.lora import ADAPTER, Compute

    recipe = _recipe(settings, options)
    golds = _golds(sources)
    if (head is not None) != (recipe.settings.guidance == "head"):
        raise InputError("guidance=head and head=LLM belong together: set both or neither")
    if head is not None:
        recipe = replace(recipe, guidance=_guidance(golds, head, Path(out) / "guidance"))
    curve = train(
        golds,
        Path(model),
        Path(out),
        recipe,
        _schedule(options),
        options.part(Compute),
        stop=_over(options.minutes),
        on_step=on_step or _ignore,
        on_estimate=on_estimate,
    )
    return Training(Path(out) / ADAPTER, curve)


@explained()
def estimate_hseq_iterator(
    sources: Mapping[str | Path, Index | str | Path] | Mapping[str, str],
    *,
    model: str | Path,
    settings: Mapping[str, Any] | None = None,
    options: HseqOptions = HSEQ_DEFAULTS,
) -> Estimate:
    """Estimate the time and memory of `train_hseq_iterator` on this machine, by trying two batches.

    Args:
        sources: A mapping from each question file with gold answers to its index, or to the index's folder.
        model: The folder of a language model in safetensors.
        settings: The hseq settings that later runs will use, by name. The default of `guidance` is `template`.
            With `guidance` set to `head`, the function does not call the head, but assumes that its guidance is as
            long as the template's.
        options: As in `train_hseq_iterator`.

    Returns:
        The number of steps and tokens, the memory in bytes, and the time of the whole training in seconds.

    Raises:
        InputError: A source or the model cannot be read, or a setting is unknown.

    Example:
        >>> from pyfast.api.training import estimate_hseq_iterator
        >>> estimate = estimate_hseq_iterator({"QUESTIONS.jsonl": "IDX"}, model="MODEL")
        >>> print(estimate)
    """
    from pyfast.systems.hseq.training import estimate
    from pyfast.training.lora import Compute

    recipe, compute = _recipe(settings, options), options.part(Compute)
    return estimate(_golds(sources), Path(model), recipe, _schedule(options), compute)


def _recipe(settings: Mapping[str, Any] | None, options: HseqOptions) -> Recipe:
    from pyfast.systems.hseq.training import Recipe

    configured = load_system("hseq").configure({"guidance": "template", **(settings or {})})
    assert isinstance(configured, Settings)
    return options.part(Recipe, settings=configured, weights=tuple(options.weights))


def _guidance(golds: Sequence[tuple[Index, Sequence[Gold]]], head: GivenLLM, folder: Path) -> dict[str, str]:
    """Return the head's guidance for each question, by the question's text.

    Only a process that trains alone may call the head. If several processes train together, all guidance must
    already be in `folder`; otherwise, the function raises `InputError`.
    """
    texts = list(dict.fromkeys(gold.question for _, some in golds for gold in some))
    if os.environ.get("RANK") and not (folder.is_dir() and Run(folder).status.ended == len(texts)):
        raise InputError(
            f"{folder}: the guidance for some questions is not written yet; run the training in a single process"
            " first, to write it, and then in several"
        )
    run = answer(texts, llm=head, system=PLANNER, run=folder)
    return {text: record.answer for text, record in zip(texts, run.records, strict=True) if record.answer}


def _schedule(options: AdapterOptions) -> Schedule:
    """The learning-rate schedule of HSEQ (A.3.4)."""
    from pyfast.training.loop import Schedule

    return options.part(Schedule, rate="cosine", warmup=0.03)


def _golds(sources: Mapping[Any, Any]) -> list[tuple[Index, list[Gold]]]:
    from pyfast.systems.hseq.weak_positives import read_gold

    if not sources:
        raise InputError("sources: expected at least one question file with its index")
    return [(index_of(index), read_gold(Path(questions))) for questions, index in sources.items()]


@dataclass(frozen=True, slots=True)
class Distilled:
    """What a model learned from finished runs."""

    path: Path
    """The training folder, with the examples"""
    runs: Mapping[str, tuple[int, int]]
    """For each run, how many of its questions were answered correctly, and how many are finished"""
    prompts: Mapping[str, tuple[int, int]]
    """For each prompt, such as `plan`, the number of examples, and how many of them are held out"""
    left_out: Mapping[str, int]
    """How many LLM calls yielded no example, by reason"""
    training: Training | None = None
    """The training. Its `path` is the folder of the adapter. None: no model was given"""
    losses: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """The mean loss of the held-out examples by prompt, without and with the adapter. Empty if the training was
    stopped early"""


@explained()
def distill(
    runs: Run | str | Path | Sequence[Run | str | Path],
    *,
    out: str | Path,
    model: str | Path | None = None,
    gold: GoldLike | None = None,
    not_in: str | Path | Sequence[str | Path] = (),
    options: DistillOptions = DISTILL_DEFAULTS,
    on_step: OnStep | None = None,
    on_estimate: OnEstimate | None = None,
) -> Distilled:
    """Teach a model what finished runs of any system and LLM did right. An example is one LLM call of a correctly
    answered question: the prompt's name, its messages, and the reply.

    Each prompt counts once. If the LLM was asked again after a malformed reply, the example consists of the first
    prompt and the last reply. The training uses LoRA, on a GPU if the machine has one, otherwise on the CPU.

    Args:
        runs: Runs with stored prompts, or their folders.
        out: The folder to write. To resume an interrupted training, call the function again with the same
            arguments.
        model: The folder of the language model to train, in safetensors. None: write only the examples to `out`.
        gold: The gold answers for `options.right="gold"`, as in `pyfast.evaluate`.
        not_in: Files of test questions, none of which may be in the runs.
        options: How to choose the examples and train on them.
        on_step: As in `train_hseq_iterator`.
        on_estimate: As in `train_hseq_iterator`.

    Returns:
        What the model learned from. `out` contains the examples in `examples.jsonl`, and the held-out ones in
        `held_out.jsonl`. Its folder `adapter` contains the adapter in PEFT format, for vLLM and transformers, and
        as `adapter.gguf` for llama.cpp.

    Raises:
        InputError: A run stores no prompts, no question was answered correctly, a question is in one of the files
            of `not_in`, the model cannot be read, or `out` contains a different training.
        RunError: The loss became infinite or NaN.

    Example:
        >>> import pyfast
        >>> learned = pyfast.distill("RUN", out="OUT", options=pyfast.DistillOptions(right="all"))
        >>> print(learned.prompts)
    """
    from pyfast.training.run_examples import EXAMPLES, HELD_OUT, Collected, balanced, is_held_out, write_examples

    given = [runs] if isinstance(runs, Run | str | Path) else list(runs)
    tests = [Path(one) for one in ([not_in] if isinstance(not_in, str | Path) else not_in)]
    collected, counts = Collected(), dict[str, tuple[int, int]]()
    for one in given:
        folder = stored(one)
        run = Run(folder)
        texts, sides, talks = dict[str, str](), dict[str, bool](), dict[str, bool]()
        for question in questions_of(folder):
            texts[question.id] = question.text
            side = is_held_out(question.text, options.held_out)
            if question.conversation is not None:  # All turns are held out or used together with the first one.
                side = talks.setdefault(question.conversation, side)
            sides[question.id] = side
        ended = [record.id for record in run.records]
        _refuse_tests(folder, {id: texts.get(id) for id in ended}, tests)
        right = _right(run, gold, options)
        held = {id for id in ended if (sides[id] if id in sides else is_held_out(id, options.held_out))}
        used = collected.add(folder, len(ended), right, held)
        counts[str(folder)] = used, len(ended)
    if not collected.examples:
        raise InputError("no training examples: no answer is correct, or all correct answers are held out")
    many = ceil(options.size * options.held_out)
    chosen = balanced(collected.examples, options.size, options.seed)
    held_out = balanced(collected.held_out, many, options.seed)
    path = Path(out)
    path.mkdir(parents=True, exist_ok=True)
    write_examples(path / EXAMPLES, chosen)
    write_examples(path / HELD_OUT, held_out)
    own, others = (Counter(it.prompt for it in some) for some in (chosen, held_out))
    prompts = {name: (own[name], others[name]) for name in sorted(own | others)}
    left_out = {why: n for why, n in collected.left_out.items() if n}
    if model is None:
        return Distilled(path, counts, prompts, left_out)
    from pyfast.training.distillation import Recipe, train
    from pyfast.training.lora import ADAPTER, Compute

    taught = train(
        chosen,
        held_out,
        Path(model),
        path,
        options.part(Recipe),
        _schedule(options),
        options.part(Compute),
        {"right": str(options.right), "min_f1": options.min_f1, "runs": counts, "prompts": prompts},
        stop=_over(options.minutes),
        on_step=on_step or _ignore,
        on_estimate=on_estimate,
    )
    left_out |= {"the example is longer than --max-tokens": taught.too_long} if taught.too_long else {}
    return Distilled(path, counts, prompts, left_out, Training(path / ADAPTER, taught.curve), taught.losses)


def _right(run: Run, gold: GoldLike | None, options: DistillOptions) -> set[str]:
    """Return the ids of the correctly answered questions of a run."""
    assert run.path is not None
    if options.right == "all":
        return {record.id for record in run.records if record.state != "failed"}
    if options.right == "gold":
        scored = report_of(run, gold_of(run, gold), ["em_f1"]).questions
        return {one.id for one in scored if (one.figures["f1"] or 0) >= options.min_f1}
    judged = Path(options.right)
    if recorded_value(judged, "system", "name") != "judge":
        raise InputError(f"right: expected gold, all or the folder of a `pyfast judge` run, not {judged}")
    sides = [side for side in "ab" if recorded_path(judged, f"run_{side}").resolve() == run.path.resolve()]
    if not sides:
        raise InputError(f"{judged} is not a judgement of {run.path}")
    return {record.id for record in Run(judged).records if record.answer in sides}


def _refuse_tests(run: Path, asked: Mapping[str, str | None], tests: Iterable[Path]) -> None:
    """Raise `InputError` if a run contains a question from a test file. `asked` gives the text of each of the
    run's questions, by id. Texts are compared or, if one of the two is unknown, ids."""
    texts = {normalise(text) for text in asked.values() if text is not None}
    for file in tests:
        shared = []
        for one in read_gold_answers(file):
            text = (one.model_extra or {}).get("question")
            by_id = text is None or asked.get(one.id, "") is None
            if one.id in asked if by_id else normalise(str(text)) in texts:
                shared.append(one.id)
        if shared:
            raise InputError(
                f"{run} contains questions from the test file {file} ({len(shared)}, among them {shared[0]!r})"
            )


def calibrate_cascade(
    runs: Run | str | Path | Sequence[Run | str | Path], *, gold: GoldLike | None = None, min_f1: float = 1.0
) -> Calibration:
    """Fit the confidence of the system `cascade` to questions with gold answers, by logistic regression. All
    answers in the traces are used, including those that another answer replaced.

    Args:
        runs: Runs of `cascade`, or their folders. Use `sure=1`, so that every system answers every question, and
            no test questions.
        gold: The gold answers, as in `pyfast.evaluate`.
        min_f1: The lowest F1 at which an answer counts as correct.

    Returns:
        The weights, and how well the confidences fit.

    Raises:
        InputError: A run cannot be read, the runs contain no answers by `cascade`, or all answers are correct or
            all are wrong.

    Example:
        >>> import pyfast
        >>> from pyfast.api.training import calibrate_cascade
        >>> given = {"system": "cascade", "settings": {"sure": 1, "then": "n2n,hseq"}}
        >>> run = pyfast.answer(["Who discovered Titan?"], index="IDX", llm="instant", **given)
        >>> first, *_ = run.records[0].trace["attempts"]
        >>> gold = [{"id": run.records[0].id, "answers": [first["answer"]]}]
        >>> calibrate_cascade(run, gold=gold).answers
        3
    """
    features, right = list[Sequence[float]](), list[float]()
    for run in [runs] if isinstance(runs, Run | str | Path) else runs:
        for by, answered in attempts_of(run_of(run).records).items():
            answers = [Record(id, "answered", one["answer"]) for id, one in answered.items()]
            for scored in score_answers(answers, gold_of(run, gold), ["em_f1"]).questions:
                features.append(features_of(by, answered[scored.id]))
                right.append(float((scored.figures["f1"] or 0) >= min_f1))
    return calibrated(features, right)


@explained()
def merge_adapter(model: str | Path, adapter: str | Path, out: str | Path) -> Path:
    """Merge a trained adapter into its model, for programs that cannot load adapters.

    Args:
        model: The folder of the model that the adapter was trained for.
        adapter: The folder of the trained adapter, in PEFT format.
        out: The folder to write.

    Returns:
        `out`.

    Raises:
        InputError: The model or the adapter cannot be read, or `out` already exists.

    Example:
        >>> from pyfast.api.training import merge_adapter
        >>> merge_adapter("MODEL", "OUT/adapter", "MERGED")
        PosixPath('MERGED')
    """
    from pyfast.training.lora import merge_adapter as merge

    merge(Path(model), Path(adapter), Path(out))
    return Path(out)


def _over(minutes: float | None) -> Callable[[], bool]:
    """Return a function that tells whether `minutes` minutes have passed since `_over` was called (None: always
    False)."""
    end = None if minutes is None else monotonic() + 60 * minutes
    return lambda: end is not None and monotonic() > end


def _ignore(point: Point, total: int) -> None:
    """Do nothing after a step."""
