"""The loop: it learns what Adam learns, continues where it stopped, and refuses what is not its own."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import torch

from pyfast.errors import InputError, RunError
from pyfast.training.loop import CHECKPOINT, CURVE, Schedule, batch, fit

EXAMPLES = [float(number) for number in range(10)]
SCHEDULE = Schedule(epochs=3, accumulation=4, learning_rate=0.05, clip=1e9, save_every=2)
DATA = {"data": "ten numbers"}


def each(loss: Callable[[float], torch.Tensor]) -> Callable[[Sequence[float]], torch.Tensor]:
    """The loss of a batch."""
    return lambda examples: torch.stack([loss(example) for example in examples]).sum()


def fresh() -> dict[str, torch.Tensor]:
    torch.manual_seed(7)
    return {name: torch.randn(5, requires_grad=True) for name in ("a", "b", "never")}


def learn(folder: Path, parameters: dict[str, torch.Tensor], schedule: Schedule = SCHEDULE, **options: Any) -> Any:
    def loss(example: float) -> torch.Tensor:
        noise = torch.rand(5)  # as dropout draws
        return ((parameters["a"] * noise - example) ** 2 + (parameters["b"] * example).sin()).mean()

    return fit(EXAMPLES, each(loss), parameters, folder, schedule, options.pop("described", DATA), **options)


def stopped_after(steps: int) -> Any:
    left = iter(range(steps))
    return lambda: next(left, None) is None


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 8])
def test_stopped_and_resumed_is_the_same_bit_for_bit(tmp_path: Path, steps: int) -> None:
    whole, parts = fresh(), fresh()
    expected = learn(tmp_path / "whole", whole)
    assert len(learn(tmp_path / "parts", parts, stop=stopped_after(steps))) == steps
    parts = fresh()  # another process: nothing but the folder is left
    found = learn(tmp_path / "parts", parts)
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    assert [(p.step, p.epoch, p.loss) for p in found] == [(p.step, p.epoch, p.loss) for p in expected]
    assert [p.epoch for p in found] == [0] * 3 + [1] * 3 + [2] * 3
    noted = [json.loads(line)["loss"] for line in (tmp_path / "parts" / CURVE).read_text().splitlines()]
    assert noted == [p.loss for p in expected]


def test_a_killed_training_repeats_what_no_checkpoint_has(tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    def kill(point: Any, total: int) -> None:
        assert total == 9
        if point.step == 4:
            raise Killed

    whole, parts = fresh(), fresh()
    learn(tmp_path / "whole", whole)
    with pytest.raises(Killed):
        learn(tmp_path / "parts", parts, on_step=kill)
    assert len((tmp_path / "parts" / CURVE).read_text().splitlines()) == 5
    heard: list[int] = []
    learn(tmp_path / "parts", parts := fresh(), on_step=lambda point, total: heard.append(point.step))
    assert heard == [4, 5, 6, 7, 8]
    assert torch.equal(whole["a"], parts["a"])
    assert len((tmp_path / "parts" / CURVE).read_text().splitlines()) == 9


def test_a_parameter_without_a_gradient_at_first_goes_on_with_its_own_steps(tmp_path: Path) -> None:
    """Adam corrects its moments by the steps in which the parameter learnt, not by those of the training."""

    def learn_late(folder: Path, parameters: dict[str, torch.Tensor], **options: Any) -> None:
        def loss(example: float) -> torch.Tensor:
            used = parameters["a"] if example < 5 else parameters["a"] * parameters["b"]
            return ((used - example) ** 2).mean()

        schedule = Schedule(epochs=2, accumulation=2, order="given", learning_rate=0.05)
        fit(EXAMPLES, each(loss), parameters, folder, schedule, DATA, **options)

    whole = fresh()
    learn_late(tmp_path / "whole", whole)
    learn_late(tmp_path / "parts", fresh(), stop=stopped_after(4))
    learn_late(tmp_path / "parts", parts := fresh())
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


@pytest.mark.parametrize("left", ["", '{"step": 0, "epo', "torn", "[]\n", "3\n"])
def test_a_damaged_curve_costs_no_step(tmp_path: Path, left: str) -> None:
    whole, parts = fresh(), fresh()
    expected = learn(tmp_path / "whole", whole)
    learn(tmp_path / "parts", parts, stop=stopped_after(5))
    path = tmp_path / "parts" / CURVE
    kept = path.read_text().splitlines(keepends=True)[:2]
    path.write_text("".join(kept) + left)
    found = learn(tmp_path / "parts", parts := fresh(), stop=stopped_after(2))
    assert [p.step for p in found] == [0, 1, 5, 6]
    found = learn(tmp_path / "parts", parts := fresh())
    assert [(p.step, p.loss) for p in found] == [(p.step, p.loss) for p in expected if p.step not in (2, 3, 4)]
    assert torch.equal(whole["a"], parts["a"])


def test_accumulated_gradients_are_those_of_one_batch(tmp_path: Path) -> None:
    """Against torch's own Adam on the mean loss of the same examples."""
    schedule = Schedule(epochs=2, accumulation=4, learning_rate=0.05, clip=0.5)
    parameters, expected = fresh(), fresh()

    def loss(weights: dict[str, torch.Tensor], example: float) -> torch.Tensor:
        return ((weights["a"] - example) ** 2).mean() + weights["b"].square().mean() * example

    fit(EXAMPLES, each(lambda example: loss(parameters, example)), parameters, tmp_path, schedule, DATA)
    adam = torch.optim.Adam(expected.values(), lr=0.05)
    for step in range(schedule.steps(10)):
        _, chosen = batch(10, schedule, step)
        adam.zero_grad()
        torch.stack([loss(expected, EXAMPLES[i]) for i in chosen]).mean().backward()
        torch.nn.utils.clip_grad_norm_(expected.values(), 0.5)
        adam.step()
    for name in ("a", "b"):
        torch.testing.assert_close(parameters[name], expected[name])
    assert torch.equal(parameters["never"], fresh()["never"])


def test_an_epoch_has_each_example_once() -> None:
    epochs: dict[int, list[int]] = {}
    for step in range(SCHEDULE.steps(10)):
        epoch, chosen = batch(10, SCHEDULE, step)
        epochs.setdefault(epoch, []).extend(chosen)
    assert [sorted(chosen) for chosen in epochs.values()] == [list(range(10))] * 3
    assert epochs[0] != epochs[1]


def test_it_refuses_what_is_not_its_own(tmp_path: Path) -> None:
    learn(tmp_path, fresh())
    for other in ({"schedule": Schedule(seed=1)}, {"described": {"data": "others"}}):
        with pytest.raises(InputError, match="belongs to another training"):
            learn(tmp_path, fresh(), **other)
    (tmp_path / CHECKPOINT).write_bytes((tmp_path / CHECKPOINT).read_bytes()[:-7])
    with pytest.raises(InputError, match="damaged"):
        learn(tmp_path, fresh())
    with pytest.raises(InputError, match="no example"):
        fit([], lambda example: torch.zeros(()), fresh(), tmp_path, SCHEDULE, DATA)


def test_a_loss_that_is_not_finite_ends_it_and_keeps_the_checkpoint(tmp_path: Path) -> None:
    parameters = fresh()
    learn(tmp_path, parameters, stop=stopped_after(2))
    kept = (tmp_path / CHECKPOINT).read_bytes()
    with pytest.raises(RunError, match="step 2: loss nan"):
        fit(EXAMPLES, lambda batch: parameters["a"].sum() * torch.nan, parameters, tmp_path, SCHEDULE, DATA)
    assert (tmp_path / CHECKPOINT).read_bytes() == kept


@pytest.mark.parametrize(("total", "warmup"), [(1, 0.0), (10, 0.0), (40, 0.03), (40, 0.25)])
def test_the_rate_is_that_of_transformers(total: int, warmup: float) -> None:
    """Its warmup begins with a step at rate 0, which learns nothing; here that step is left out."""
    transformers = pytest.importorskip("transformers")
    rising = math.ceil(warmup * total)
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.5)
    scheduler = transformers.get_cosine_schedule_with_warmup(optimizer, rising, total)
    expected = []
    for _ in range(total + 1):
        expected.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    schedule = Schedule(learning_rate=0.5, rate="cosine", warmup=warmup)
    found = [schedule.learning_rate_of(step, total) for step in range(total)]
    assert found[:rising] == pytest.approx(expected[1 : rising + 1])
    assert found[rising:] == pytest.approx(expected[rising:total])
    constant = Schedule(learning_rate=0.5, warmup=warmup)
    assert {constant.learning_rate_of(step, total) for step in range(rising, total)} == {0.5}


def test_each_step_has_its_rate(tmp_path: Path) -> None:
    """One parameter whose gradient is always 1: Adam moves it by the rate of each step."""
    schedule = Schedule(accumulation=4, learning_rate=0.1, rate="cosine", warmup=0.5, clip=1e9)
    weight = torch.zeros(1, requires_grad=True)
    fit(EXAMPLES, each(lambda example: weight.sum()), {"w": weight}, tmp_path, schedule, DATA)
    moved = sum(schedule.learning_rate_of(step, 3) for step in range(3))
    assert -weight.item() == pytest.approx(moved, rel=1e-4)


def test_a_given_order_is_kept() -> None:
    schedule = Schedule(epochs=2, accumulation=4, order="given")
    assert [batch(10, schedule, step)[1] for step in range(3)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert batch(10, schedule, 3) == (1, [0, 1, 2, 3])
