"""The training of graph_convqa: its examples, its gradients, its files; and that it learns."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from models import converted_model
from runs import Watched

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

import torch
from runs import answer_all
from transformers import AutoModelForCausalLM, AutoTokenizer

from pyfast.engine import Question, Record
from pyfast.errors import InputError, ModelNotFoundError
from pyfast.evaluation import evaluate
from pyfast.llm import Request, open_llm
from pyfast.llm.local import chat, folder_digest
from pyfast.llm.transformers import open_model
from pyfast.retrieval import Index
from pyfast.systems import load_system
from pyfast.systems.graph_convqa.encoder import GraphEncoder, Shape
from pyfast.systems.graph_convqa.injection import Framed, embedded, open_trained
from pyfast.systems.graph_convqa.system import MOST_TOKENS
from pyfast.systems.graph_convqa.training import Example, Recipe, completion_loss, loss_of, make_examples, train
from pyfast.training.loop import Schedule
from pyfast.training.lora import learning, with_lora

RECIPE = Recipe(k=4, passages=20, memory="random", max_prompt_tokens=400, lora_rank=4, lora_alpha=8)
SCHEDULE = Schedule(epochs=2, accumulation=2, learning_rate=1e-2, save_every=2)


def test_an_example_ends_with_the_answer_and_knows_the_right_past(
    small: Index, tiny: Path, turns: list[Question]
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    with_graph = make_examples(small, turns, tokenizer, replace(RECIPE, max_prompt_tokens=2000))
    as_text = make_examples(small, turns, tokenizer, replace(RECIPE, max_prompt_tokens=2000, graph=False))
    assert len(with_graph) == len(as_text) == len(turns)
    for turn, graph, text in zip(turns, with_graph, as_text, strict=True):
        assert tokenizer.decode(graph.answer) == turn.answers[0] + tokenizer.eos_token
        assert graph.answer == text.answer and isinstance(graph.prompt, Framed)
        nodes = graph.prompt.graph.tokens.tolist()
        said = tokenizer.decode([*graph.prompt.prefix, *nodes, *graph.prompt.suffix])
        assert said == tokenizer.decode(text.prompt)  # the same words for both
        assert turn.text in said
    second = tokenizer.decode(as_text[1].prompt)
    assert "Question: Who discovered Titan?\nAnswer: Christiaan Huygens\nQuestion: Which planet" in second
    assert "Christiaan Huygens" not in tokenizer.decode(as_text[0].prompt).split("The conversation")[1]


@pytest.mark.parametrize("graph", [False, True])
def test_it_is_cut_as_the_system_cuts_it_and_told(
    small: Index,
    tiny: Path,
    turns: list[Question],
    tmp_path: Path,
    graph: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The system with a window of so many tokens, and those of the answer."""
    recipe = replace(RECIPE, graph=graph, max_prompt_tokens=230, memory="off", k=12)
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    examples = make_examples(small, turns, tokenizer, recipe)
    assert sum(example.dropped > 0 for example in examples) > 0
    train(small, turns, tiny, tmp_path, recipe, replace(SCHEDULE, epochs=0))
    dropped = sum(example.dropped for example in examples)
    assert f"evidence items left out: {dropped}\n" in caplog.text
    given = {"memory": "off", "k": "12", "passages": "20", "history": "gold"}
    given |= {"trained": str(tmp_path)} if graph else {"graph": "off"}
    system, records = load_system("graph_convqa"), list[Record]()
    llm = Watched(context_window=230 + MOST_TOKENS)
    asked: list[Request] = []
    llm.reply = lambda request: asked.append(request) or "x"  # type: ignore[func-returns-value]
    asyncio.run(answer_all(iter(turns), system.ask(system.configure(given)), small, llm, records.append, 1))
    assert [record.trace["items_dropped"] for record in records] == [example.dropped for example in examples]
    for request, example in zip(asked, examples, strict=True):
        if isinstance(example.prompt, Framed):
            assert request.embeds is not None and len(request.embeds) == (
                len(example.prompt.prefix) + len(example.prompt.graph.tokens) + len(example.prompt.suffix)
            )
        else:
            assert tuple(tokenizer.encode(chat(tokenizer, request.messages), add_special_tokens=False)) == (
                example.prompt
            )


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"graph": False, "layers": 3}, "layers has no effect with graph=False: leave it out"),
        ({"graph": False, "residual": False}, "residual has no effect with graph=False: leave it out"),
        ({"memory": "off", "memory_share": 0.5}, "memory_share has no effect with memory=off: leave it out"),
    ],
)
def test_what_would_change_nothing_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as error:
        Recipe(**given)
    assert str(error.value) == told


def test_the_encoder_is_as_it_is_asked_for(
    small: Index, tiny: Path, turns: list[Question], tmp_path: Path
) -> None:
    recipe = replace(RECIPE, layers=1, heads=4, dropout=0.25)
    train(small, turns, tiny, tmp_path, recipe, SCHEDULE)
    shape = open_trained(str(tmp_path)).encoder.shape
    assert (shape.layers, shape.heads, shape.dropout) == (1, 4, 0.25)
    assert shape.model == folder_digest(tmp_path / "model") != folder_digest(tiny)


def test_only_the_answer_bears_loss(tiny: Path) -> None:
    """Against transformers' own loss with labels of -100."""
    model = AutoModelForCausalLM.from_pretrained(tiny)
    prompt, completion = torch.tensor([5, 6, 7, 8]), torch.tensor([9, 10, 2])
    found = completion_loss(model, model.get_input_embeddings()(prompt), completion)
    labels = torch.cat([torch.full_like(prompt, -100), completion])
    expected = model(input_ids=torch.cat([prompt, completion])[None], labels=labels[None]).loss
    torch.testing.assert_close(found, expected)


def test_a_model_that_scales_its_embeddings_is_refused() -> None:
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "head_dim": 8}
    scaled = Gemma3ForCausalLM(Gemma3TextConfig(vocab_size=20, num_attention_heads=2, **sizes))
    with pytest.raises(InputError, match=r"embeddings are a Gemma3TextScaledWordEmbedding, not"):
        with_lora(scaled)


def gradients_reach_all(folder: Path, index: Index, turns: list[Question], checked: int) -> None:
    """Every parameter has a gradient; the largest entry, of some parameters, is that of finite differences."""
    torch.manual_seed(0)
    model, tokenizer = open_model(folder)
    example: Example = make_examples(index, turns, tokenizer, RECIPE)[1]
    model = with_lora(model, rank=4, alpha=8, dropout=0.0).double()
    encoder = GraphEncoder(Shape(model.config.hidden_size)).double().eval()
    parameters = learning(model) | {f"encoder.{name}": weight for name, weight in encoder.named_parameters()}
    with torch.no_grad():
        for name, weight in parameters.items():
            if "lora_B" in name:  # begins at 0, where its partner's gradient is 0 too
                weight.normal_(std=0.02)
    loss_of(example, model, encoder).backward()
    assert {name for name in parameters if "lora" in name} and {name for name in parameters if "encoder" in name}
    assert len(learning(model)) == 6 * model.config.num_hidden_layers  # A and B of q, k and v
    for name, weight in parameters.items():
        assert weight.grad is not None and weight.grad.abs().max() > 0, name
    kinds = [[name for name in parameters if kind in name] for kind in ("lora", "encoder")]
    chosen = [name for names in kinds for name in names[:: max(len(names) // checked, 1)]]
    with torch.no_grad():
        for name in chosen:
            weight = parameters[name]
            assert weight.grad is not None
            place = int(weight.grad.abs().argmax())
            flat, sides = weight.view(-1), []
            before = flat[place].item()
            for step in (1e-6, -1e-6):
                flat[place] = before + step
                sides.append(loss_of(example, model, encoder).item())
            flat[place] = before
            expected = weight.grad.view(-1)[place].item()
            assert (sides[0] - sides[1]) / 2e-6 == pytest.approx(expected, rel=1e-4, abs=1e-7), name


@pytest.fixture
def double_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers takes norms in single precision in a model of any precision: too coarse for differences."""
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    def forward(norm: Any, x: torch.Tensor) -> torch.Tensor:
        return norm.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + norm.variance_epsilon)

    monkeypatch.setattr(LlamaRMSNorm, "forward", forward)


@pytest.mark.usefixtures("double_norms")
def test_gradients(tiny: Path, small: Index, turns: list[Question]) -> None:
    gradients_reach_all(tiny, small, turns, checked=12)


@pytest.mark.slow(suite="training")
@pytest.mark.usefixtures("double_norms")
def test_gradients_of_the_small_real_model(small: Index, turns: list[Question]) -> None:
    gradients_reach_all(converted_model(), small, turns, checked=4)


@pytest.mark.parametrize("graph", [True, False], ids=["graph", "text"])
def test_stopped_and_resumed_is_the_same(
    small: Index, tiny: Path, turns: list[Question], tmp_path: Path, graph: bool
) -> None:
    recipe = replace(RECIPE, graph=graph)
    whole = train(small, turns, tiny, tmp_path / "whole", recipe, SCHEDULE)
    left = iter([False, False, False, True])
    train(small, turns, tiny, tmp_path / "parts", recipe, SCHEDULE, stop=lambda: next(left))
    parts = train(small, turns, tiny, tmp_path / "parts", recipe, SCHEDULE)
    assert [point.loss for point in whole] == [point.loss for point in parts] and len(whole) == 6
    names = ["model/model.safetensors", *(["encoder.safetensors"] if graph else [])]
    for name in names:
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes()
    assert (tmp_path / "whole" / "encoder.safetensors").exists() == graph
    assert json.loads((tmp_path / "whole" / "recipe.json").read_text())["steps"] == 6
    corrected = [replace(turns[0], answers=("nobody",)), *turns[1:]]  # the same turns by their ids
    with pytest.raises(InputError, match="belongs to another training"):
        train(small, corrected, tiny, tmp_path / "parts", recipe, SCHEDULE)
    with pytest.raises(InputError, match="belongs to another training"):
        train(small, turns[:-1], tiny, tmp_path / "whole", recipe, SCHEDULE)


def test_what_is_saved_is_what_was_learnt(
    small: Index, tiny: Path, turns: list[Question], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder, opened as the system opens it, has the loss that the model had at the end of its training."""
    import pyfast.systems.graph_convqa.training as module

    kept: dict[str, Any] = {}

    def save(model: Any, tokenizer: Any, folder: Path) -> None:
        kept["loss"] = [
            loss_of(example, model.eval(), kept["encoder"].eval()).item() for example in kept["examples"]
        ]
        save_merged(model, tokenizer, folder)

    def remembered(example: Example, model: Any, encoder: GraphEncoder) -> torch.Tensor:
        kept["encoder"] = encoder
        return loss_of(example, model, encoder)

    save_merged = module.save_merged
    kept["examples"] = make_examples(small, turns, AutoTokenizer.from_pretrained(tiny), RECIPE)
    monkeypatch.setattr(module, "save_merged", save)
    monkeypatch.setattr(module, "loss_of", remembered)
    train(small, turns, tiny, tmp_path, RECIPE, SCHEDULE)
    trained = open_trained(str(tmp_path))
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    with torch.inference_mode():
        found = [
            completion_loss(
                model, embedded(example.prompt, trained.table, trained.encoder), torch.tensor(example.answer)
            ).item()
            for example in kept["examples"]
        ]
    assert found == pytest.approx(kept["loss"], rel=1e-4)


def test_a_folder_that_is_no_model(small: Index, turns: list[Question], tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="no model folder"):
        train(small, turns, tmp_path, tmp_path / "out", RECIPE, SCHEDULE)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow(suite="training")
def test_the_small_real_model_learns_a_tiny_set_by_heart(
    small: Index, turns: list[Question], tmp_path: Path
) -> None:
    """H@1 of at least 0.9 on what it learnt from, through the system and transformers."""
    recipe = Recipe(k=3, passages=20, memory="off", max_prompt_tokens=400)
    schedule = Schedule(epochs=8, accumulation=1, learning_rate=1e-3)
    train(small, turns, converted_model(), tmp_path / "trained", recipe, schedule)
    given = {"trained": str(tmp_path / "trained"), "memory": "off", "k": "3", "passages": "20", "history": "gold"}
    system = load_system("graph_convqa")
    llm = open_llm(f"transformers:{tmp_path / 'trained' / 'model'}")
    records: list[Record] = []

    async def ask() -> None:
        await llm.start()
        await answer_all(iter(turns), system.ask(system.configure(given)), small, llm, records.append)
        await llm.close()

    asyncio.run(ask())
    gold = [
        {"id": turn.id, "turns": [{"id": turn.id, "question": turn.text, "answers": turn.answers}]}
        for turn in turns
    ]
    assert evaluate(records, gold).rows[0]["h@1"].value >= 0.9, [record.answer for record in records]
