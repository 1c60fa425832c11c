"""The training of HSEQ's iterator: what bears loss, resume, its files; and that it learns."""

import json
from pathlib import Path
from typing import Any

import pytest
from models import converted_model

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from pyfast.commands.cli import app
from pyfast.errors import InputError, ModelNotFoundError, PyfastError
from pyfast.llm.local import folder_hash
from pyfast.llm.transformers import open_model
from pyfast.retrieval import Index
from pyfast.systems.hseq.actions import select_prompt
from pyfast.systems.hseq.system import Settings
from pyfast.systems.hseq.training import Recipe, example_of, targets_of, train
from pyfast.systems.hseq.weak_positives import Gold, read_gold
from pyfast.training.loop import CURVE, Schedule
from pyfast.training.lora import ADAPTER, ALL_PROJECTIONS, losses_of, merge_adapter, with_lora

SETTINGS = Settings(window=4, k=2, steps=3, prior=16, guidance="off", characters=60)
RECIPE = Recipe(settings=SETTINGS, size=6, lexical_weight=0.0, lora_rank=4, lora_alpha=8)
SCHEDULE = Schedule(accumulation=2, learning_rate=1e-2, rate="cosine", warmup=0.1, save_every=1)


@pytest.fixture(scope="module")
def golds(examples: Path) -> list[Gold]:
    return read_gold(examples / "questions.jsonl")[:12]


def test_only_the_action_bears_loss(small: Index, golds: list[Gold], tiny: Path) -> None:
    """Against transformers' own loss, with labels of -100 for the prompt."""
    model = AutoModelForCausalLM.from_pretrained(tiny)
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    for target in list(targets_of(small, golds, RECIPE))[:4]:
        example = example_of(target, tokenizer, RECIPE)
        prompt, fields = target.prompt(SETTINGS)
        said = prompt.request(fields, 0.0, 0).messages
        messages = [{"role": it.role, "content": it.content} for it in said]
        messages.append({"role": "assistant", "content": target.answer(SETTINGS)})
        whole = tokenizer.apply_chat_template(messages, tokenize=False).rstrip("\n")
        assert tokenizer.decode(torch.cat([example.prompt, example.answer])) == whole
        labels = torch.cat([torch.full_like(example.prompt, -100), example.answer])
        inputs = torch.cat([example.prompt, example.answer])
        expected = model(input_ids=inputs[None], labels=labels[None]).loss
        torch.testing.assert_close(losses_of([example], model)[0], expected)


def test_weights_are_of_the_verdict_and_of_what_is_not_sure(small: Index, golds: list[Gold], tiny: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    recipe = Recipe(settings=SETTINGS, verdict_weight=3.0, lexical_weight=0.5)
    unsure = Gold(id="q", question=golds[0].question, answers=("yes",))
    (target, *_) = [step for step in targets_of(small, [unsure], recipe) if step.labels]
    example = example_of(target, tokenizer, recipe)
    heavy = tokenizer.decode(example.answer[example.weights == 1.5])
    light = tokenizer.decode(example.answer[example.weights == 0.5])
    assert heavy.strip() in ("true}", "false}")
    assert light.startswith('{"type": "select"') and light.endswith(f'"sufficiency":{tokenizer.eos_token}')
    model = AutoModelForCausalLM.from_pretrained(tiny)
    inputs = torch.cat([example.prompt, example.answer])[None]
    told = torch.log_softmax(model(input_ids=inputs).logits[0, len(example.prompt) - 1 : -1], dim=-1)
    losses = -told.gather(1, example.answer[:, None])[:, 0]
    torch.testing.assert_close(losses_of([example], model)[0], (losses * example.weights).mean())


def test_lora_is_that_of_the_paper(tiny: Path) -> None:
    """A.3.4: seven projections of each layer, and nothing else of the model learns."""
    model = with_lora(open_model(tiny)[0], rank=16, alpha=32, targets=ALL_PROJECTIONS)
    learnt = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert len(learnt) == 2 * 2 * 7 and all(".lora_" in name for name in learnt)
    assert {name.split(".lora_")[0].rsplit(".", 1)[1] for name in learnt} == set(ALL_PROJECTIONS)


def test_stopped_and_resumed_is_the_same_bit_for_bit(
    small: Index, golds: list[Gold], tiny: Path, tmp_path: Path
) -> None:
    def losses(out: Path, **options: Any) -> list[float]:
        return [point.loss for point in train([(small, golds)], tiny, out, RECIPE, SCHEDULE, **options)]

    asked = iter([False, True])
    whole = losses(tmp_path / "whole")
    assert losses(tmp_path / "parts", stop=lambda: next(asked)) == whole[:1]
    assert losses(tmp_path / "parts") == whole and len(whole) == 3
    noted = [json.loads(line)["loss"] for line in (tmp_path / "parts" / CURVE).read_text().splitlines()]
    assert noted == whole
    one, other = (load_file(tmp_path / run / ADAPTER / "adapter_model.safetensors") for run in ("whole", "parts"))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    assert any(weights.any() for name, weights in one.items() if "lora_B" in name)
    with pytest.raises(InputError, match="another training"):
        train([(small, golds[1:])], tiny, tmp_path / "whole", RECIPE, SCHEDULE)


def test_the_merged_model_says_what_the_adapter_does(
    small: Index, golds: list[Gold], tiny: Path, tmp_path: Path
) -> None:
    from peft import PeftModel

    train([(small, golds)], tiny, tmp_path / "run", RECIPE, SCHEDULE)
    adapter = tmp_path / "run" / ADAPTER
    merge_adapter(tiny, adapter, tmp_path / "merged")
    tokens = torch.arange(5, 50)[None]
    beside = PeftModel.from_pretrained(open_model(tiny)[0], adapter).eval()
    merged, plain = open_model(tmp_path / "merged")[0].eval(), open_model(tiny)[0].eval()
    with torch.inference_mode():
        torch.testing.assert_close(merged(tokens).logits, beside(tokens).logits, rtol=1e-4, atol=1e-4)
        assert not torch.allclose(merged(tokens).logits, plain(tokens).logits, atol=1e-2)
    assert folder_hash(tmp_path / "merged") != folder_hash(tiny)
    with pytest.raises(ModelNotFoundError, match="no adapter at"):
        merge_adapter(tiny, tmp_path / "run", tmp_path / "again")


def test_the_command_line(examples: Path, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Train, resume and merge; pyfast reports what goes wrong before anything is learnt."""

    def called(*arguments: object) -> str:
        app([str(argument) for argument in arguments], standalone_mode=False)
        return capsys.readouterr().out

    called("index", examples / "corpus", "--out", tmp_path / "index")
    source, out = f"{examples / 'questions.jsonl'}={tmp_path / 'index'}", tmp_path / "out"
    learn = ("train", "hseq-iterator", source, "--out", out, "--size", 4, "--accumulation", 2, "--lora-rank", 4)
    learn = (*learn, "--set", "window=4")
    said = called(*learn, "--model", tiny)
    assert said.startswith("2 steps, loss ") and (out / ADAPTER / "adapter_config.json").is_file()
    assert json.loads((out / "recipe.json").read_text())["recipe"]["settings"]["window"] == 4
    assert called(*learn, "--model", tiny) == said  # there is nothing left to learn
    called("train", "merge", tiny, out / ADAPTER, tmp_path / "merged")
    assert (tmp_path / "merged" / "config.json").is_file()
    for wrong, fault in [
        (("train", "merge", tiny, out / ADAPTER, tmp_path / "merged"), "exists; choose another folder"),
        ((*learn, "--model", tiny, "--set", "k=9"), "k must not be greater than window"),
        ((*learn, "--model", tiny, "--weights", "a"), "expected numbers"),
        ((*learn, "--model", tiny, "--weights", "1,2"), r"one for each source \(1\), got 2"),
        ((*learn, "questions.jsonl", "--model", tiny), "expected NAME=VALUE"),
        ((*learn, "--model", "someone/model"), "no model folder at someone/model"),
    ]:
        with pytest.raises(PyfastError, match=fault):
            called(*wrong)


@pytest.mark.slow(suite="training")
def test_the_real_model_learns_a_few_questions_by_heart(small: Index, golds: list[Gold], tmp_path: Path) -> None:
    """What it says afterwards, greedily, is the target's action to the letter; before, it is not."""
    folder = converted_model()
    settings = Settings(window=2, k=1, steps=1, prior=8, guidance="off", characters=40)
    recipe = Recipe(settings=settings, size=3, lexical_weight=0.0, dropout=0.0)
    different = {step.answer(settings): step for gold in golds for step in targets_of(small, [gold], recipe)}
    targets = list(different.values())
    few = [gold for gold in golds if gold.id in {step.question for step in targets}]
    assert len(few) == len(targets) == 3  # the first, the second, none
    schedule = Schedule(epochs=8, accumulation=1, learning_rate=1e-3, save_every=100)
    curve = train([(small, few)], folder, tmp_path / "run", recipe, schedule)
    merge_adapter(folder, tmp_path / "run" / ADAPTER, tmp_path / "merged")
    assert max(point.loss for point in curve[-3:]) < 0.05 < 0.5 < curve[0].loss
    assert said_by(tmp_path / "merged", targets, recipe) == [step.answer(settings) for step in targets]
    assert said_by(folder, targets, recipe) != [step.answer(settings) for step in targets]


def said_by(folder: Path, targets: list[Any], recipe: Recipe) -> list[str]:
    """The model's own words, unconstrained."""
    model, tokenizer = open_model(folder)
    found = []
    for target in targets:
        prompt = example_of(target, tokenizer, recipe).prompt[None]
        most = select_prompt(1, 1).max_tokens
        with torch.inference_mode():
            tokens = model.generate(
                prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=most, do_sample=False
            )
        found.append(tokenizer.decode(tokens[0, prompt.shape[1] :], skip_special_tokens=True))
    return found
