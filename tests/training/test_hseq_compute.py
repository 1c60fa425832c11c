"""How the iterator's training is computed changes nothing of what is learnt: batches, precision, processes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

import torch
from grouped import grouped
from safetensors.torch import load_file
from scripted import Scripted

import pyfast
from pyfast.api.training import estimate_hseq_iterator, train_hseq_iterator
from pyfast.commands.cli import app
from pyfast.errors import InputError
from pyfast.retrieval import Index
from pyfast.systems.hseq.guidance import GUIDE
from pyfast.systems.hseq.system import Settings
from pyfast.systems.hseq.training import Recipe, prepared, targets_of, train
from pyfast.systems.hseq.weak_positives import Gold, read_gold
from pyfast.training.loop import CURVE, Batches, Devices, Point, Schedule, tokens_of
from pyfast.training.lora import ADAPTER, Compute, Example, losses_of

SHORT: dict[str, Any] = {"window": 4, "k": 2, "steps": 3, "prior": 16, "characters": 60}
SETTINGS = Settings(**SHORT, guidance="off")
RECIPE = Recipe(settings=SETTINGS, size=11, lexical_weight=0.0, lora_rank=4, lora_alpha=8, dropout=0.0)
SCHEDULE = Schedule(accumulation=4, learning_rate=1e-2, rate="cosine", warmup=0.1)


@pytest.fixture(scope="module")
def golds(examples: Path) -> list[Gold]:
    return read_gold(examples / "questions.jsonl")[:12]


@pytest.fixture(scope="module")
def plain(small: Index, golds: list[Gold], tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training of one example after the other."""
    out = tmp_path_factory.mktemp("plain") / "out"
    assert len(train([(small, golds)], tiny, out, RECIPE, SCHEDULE)) == 3
    return out


def losses(out: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (out / CURVE).read_text().splitlines()]


def adapter(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / ADAPTER / "adapter_model.safetensors")


def same(out: Path, plain: Path) -> None:
    """The curve and the weights, but for rounding."""
    assert losses(out) == pytest.approx(losses(plain), abs=1e-4)
    found, expected = adapter(out), adapter(plain)
    assert found.keys() == expected.keys() and any(it.abs().max() > 1e-2 for it in expected.values())
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "compute", [Compute(batch=3), Compute(checkpointing=True), Compute(batch=8, checkpointing=True)]
)
def test_batches_and_checkpoints_learn_the_same(
    small: Index, golds: list[Gold], tiny: Path, plain: Path, tmp_path: Path, compute: Compute
) -> None:
    train([(small, golds)], tiny, tmp_path, RECIPE, SCHEDULE, compute)
    same(tmp_path, plain)


def made(small: Index, golds: list[Gold], tiny: Path, compute: Compute) -> tuple[Any, list[Example]]:
    return prepared([(small, golds)], tiny, RECIPE, compute, 0, Devices())


def test_it_learns_what_a_bare_loop_learns(small: Index, golds: list[Gold], tiny: Path, plain: Path) -> None:
    """One example after the other through the model's own forward pass, with torch's Adam and a cosine."""
    model, examples = made(small, golds, tiny, Compute())
    learning = {name: it for name, it in model.named_parameters() if it.requires_grad}
    adam = torch.optim.Adam(learning.values())
    for step, rate in enumerate([1e-2, 1e-2, 5e-3]):  # one step of warmup, then half a wave over two
        batch = examples[4 * step : 4 * step + 4]
        curve = 0.0
        for it in batch:
            tokens = torch.cat([it.prompt, it.answer])
            logits = model(input_ids=tokens[None]).logits[0, len(it.prompt) - 1 : -1]
            told = -logits.log_softmax(-1).gather(1, it.answer[:, None])[:, 0] * it.weights
            (told.mean() / len(batch)).backward()
            curve += told.mean().item() / len(batch)
        assert losses(plain)[step] == pytest.approx(curve, abs=1e-4)
        torch.nn.utils.clip_grad_norm_(learning.values(), 1.0)
        adam.param_groups[0]["lr"] = rate
        adam.step()
        adam.zero_grad()
    assert len(losses(plain)) == 3
    for name, tensor in adapter(plain).items():
        learnt = learning[name.replace(".weight", ".default.weight")]
        torch.testing.assert_close(tensor, learnt.detach(), rtol=1e-4, atol=1e-4)


def test_a_batch_has_the_losses_of_its_examples(small: Index, golds: list[Gold], tiny: Path) -> None:
    model, examples = made(small, golds, tiny, Compute())
    assert len({it.tokens for it in examples}) > 5
    together = losses_of(examples, model)
    alone = torch.cat([losses_of([it], model) for it in examples])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-4)


def test_checkpoints_keep_less(small: Index, golds: list[Gold], tiny: Path) -> None:
    def kept(checkpointing: bool) -> int:
        """Numbers that are kept for the gradient, beside the logits."""
        model, examples = made(small, golds, tiny, Compute(checkpointing=checkpointing))
        count = 0

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal count
            if not isinstance(tensor, torch.nn.Parameter) and model.config.vocab_size not in tensor.shape:
                count += tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda it: it):
            losses_of(examples[:2], model).sum()
        return count

    assert 0 < kept(True) < kept(False) / 2


def test_bfloat16_learns_nearly_the_same(
    small: Index, golds: list[Gold], tiny: Path, plain: Path, tmp_path: Path
) -> None:
    """The model's weights are of two bytes, what learns is of four."""
    compute = Compute(batch=2, precision="bfloat16")
    model, _ = made(small, golds, tiny, compute)
    kinds = {it.requires_grad: it.dtype for it in model.parameters()}
    assert kinds == {False: torch.bfloat16, True: torch.float32}
    train([(small, golds)], tiny, tmp_path, RECIPE, SCHEDULE, compute)
    assert losses(tmp_path) == pytest.approx(losses(plain), rel=0.02) and losses(tmp_path) != losses(plain)
    assert {it.dtype for it in adapter(tmp_path).values()} == {torch.float32}


def test_batches_are_of_like_size() -> None:
    sizes = [5, 90, 7, 80, 6]
    assert Batches(lambda it: it, 2).of(sizes) == [[1, 3], [2, 4], [0]]
    assert Batches(lambda it: it).of(sizes) == [[0], [1], [2], [3], [4]]
    assert tokens_of([5, 90], lambda it: it) == 180


def hseq(**given: Any) -> dict[str, Any]:
    """Arguments with the options of the training as one object."""
    return grouped(pyfast.HseqOptions, **given)


@pytest.fixture
def source(examples: Path, small: Index, tmp_path: Path) -> Iterator[dict[Path, Index]]:
    """A file of a few questions, and its index."""
    lines = (examples / "questions.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "few.jsonl").write_text("".join(lines[:12]), encoding="utf-8")
    yield {tmp_path / "few.jsonl": small}


def test_what_it_takes_is_told_before_it_starts(source: dict[Path, Index], tiny: Path, tmp_path: Path) -> None:
    """It is counted right, and learning is the same as without."""
    options: dict[str, Any] = {"model": tiny, "size": 10, "accumulation": 4, "lora_rank": 4, "settings": SHORT}
    told: list[Any] = []

    def learn(out: str, **more: Any) -> list[Point]:
        return train_hseq_iterator(source, out=tmp_path / out, **hseq(**options, **more)).curve

    first = learn("told", batch=2, on_estimate=told.append, on_step=lambda point, total: told.append(point.step))
    assert told[1:] == [0, 1, 2] and told[0].steps == 3
    assert [it.loss for it in first] == [it.loss for it in learn("quiet", batch=2)]
    assert learn("told", batch=2, on_estimate=told.append) == first and len(told) == 4  # nothing lies ahead
    alone = estimate_hseq_iterator(source, **hseq(**options))
    assert told[0].tokens >= alone.tokens and alone.longest < told[0].longest <= 2 * alone.longest
    weights = (tiny / "model.safetensors").stat().st_size
    assert weights < alone.memory < 2**34 and 0 < alone.seconds < 600
    assert str(alone).startswith(f"3 steps, {alone.tokens} tokens, at most {alone.longest} in a batch; about ")


def test_the_heads_guidance_is_asked_for_once_and_learnt(
    source: dict[Path, Index], tiny: Path, tmp_path: Path
) -> None:
    head = Scripted(guide=lambda request: {"first_look": f"Look for {request.digest().hex()}", "stop": "the name"})
    options: dict[str, Any] = {"model": tiny, "settings": {"guidance": "head"}, "size": 4, "lora_rank": 4}
    train_hseq_iterator(source, out=tmp_path / "out", head=head, **hseq(**options))
    ((questions, index),) = source.items()
    golds = read_gold(questions)
    assert head.kinds == ["guide"] * len(golds)
    planned = pyfast.Run(tmp_path / "out" / "guidance").records
    recipe = replace(
        RECIPE,
        settings=SETTINGS.model_copy(update={"guidance": "head"}),
        guidance={gold.question: record.answer for gold, record in zip(golds, planned, strict=True)},
    )
    for step in targets_of(index, golds, recipe):
        (gold,) = (gold for gold in golds if gold.id == step.question)
        prompt, fields = step.prompt(recipe.settings)
        asked = GUIDE.request({"question": gold.question}, 0.0, 0).digest().hex()
        assert fields["guidance"] == f"Guidance: Look for {asked} the name\n"
        assert step.state.guidance in prompt.request(fields, 0.0, 0).messages[-1].content
    train_hseq_iterator(source, out=tmp_path / "out", head=head, **hseq(**options))  # it is kept
    assert len(head.calls) == len(golds)
    for wrong in ({"head": head, "settings": {}}, {"settings": {"guidance": "head"}}):
        with pytest.raises(InputError, match="belong together"):
            train_hseq_iterator(source, out=tmp_path / "other", **hseq(**{**options, **wrong}))


def test_several_processes_want_guidance_that_is_there(
    source: dict[Path, Index], tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(InputError, match="run the training in a single process first"):
        train_hseq_iterator(
            source,
            model=tiny,
            out=tmp_path,
            head="instant",
            settings={"guidance": "head"},
            options=pyfast.HseqOptions(size=4),
        )


def test_the_command_tells_too(
    source: dict[Path, Index], tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ((questions, index),) = source.items()
    learn = ["train", "hseq-iterator", f"{questions}={index.folder}", "--model", str(tiny), "--size", "4"]
    learn += [f"--set={name}={value}" for name, value in SHORT.items()]
    learn += ["--out", str(tmp_path / "out"), "--batch", "2", "--precision", "bfloat16", "--checkpointing"]
    app([*learn, "--estimate"], standalone_mode=False)
    assert capsys.readouterr().out.startswith("1 step, ") and not (tmp_path / "out").exists()
    app(learn, standalone_mode=False)
    said = capsys.readouterr()
    assert said.out.startswith("1 step, loss ") and said.err.replace("\n", " ").startswith("1 step, ")


@pytest.mark.slow(suite="training")
def test_two_processes_learn_what_one_does(source: dict[Path, Index], tiny: Path, tmp_path: Path) -> None:
    """Over gloo, with dropout; the last step has an example for one of them alone."""
    ((questions, index),) = source.items()
    options: dict[str, Any] = {"size": 7, "accumulation": 3, "learning_rate": 0.01, "lora_rank": 4}
    alone = train_hseq_iterator(source, model=tiny, out=tmp_path / "one", **hseq(**options))
    launch = ["accelerate.commands.launch", "--cpu", "--num_processes", "2", "--num_machines", "1"]
    launch += ["--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]
    learn = ["pyfast", "train", "hseq-iterator", f"{questions}={index.folder}", "--model", str(tiny)]
    learn += ["--out", str(tmp_path / "two")]
    for name, value in options.items():
        learn += [f"--{name.replace('_', '-')}", str(value)]
    start = [sys.executable, "-m", *launch, "-m", *learn]
    run = subprocess.run(start, capture_output=True, text=True, timeout=300, env=os.environ)
    assert run.returncode == 0, run.stderr
    told = f"3 steps, loss {alone.loss:.3f}; {tmp_path / 'two' / ADAPTER}\n"
    assert run.stdout == told  # by one of them
    assert run.stderr.count(" tokens, at most ") == 1
    same(tmp_path / "two", tmp_path / "one")


def test_graph_convqa_refuses_to_be_several(monkeypatch: pytest.MonkeyPatch, small: Index, tmp_path: Path) -> None:
    from pyfast.systems.graph_convqa import training

    monkeypatch.setattr(training, "open_devices", lambda: replace(Devices(), count=2))
    with pytest.raises(InputError, match="only in a single process"):
        training.train(small, [], tmp_path, tmp_path, training.Recipe(), Schedule())
