"""What a model learns from finished runs: the examples that `pyfast distill` chooses."""

import json
import math
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from scripted import Scripted
from typer.testing import CliRunner

import pyfast
from pyfast.commands.cli import app
from pyfast.errors import InputError
from pyfast.llm import Completion, Message, Request
from pyfast.training.run_examples import RunExample, balanced, is_held_out, reply_of

ASKED = [
    {"id": f"q{number}", "question": f"Which moon has number {number}?", "answers": [f"Moon {number}"]}
    for number in range(40)
]


def teacher(request: Request) -> Completion:
    """Right where the number is even; at first in the wrong form where it is a multiple of four."""
    said = [message.content for message in request.messages]
    number = int(said[1].rpartition("number ")[2].split("?")[0])
    if number % 4 == 0 and len(said) == 2:
        return Completion("Moon!", "stop")
    answer = f"Moon {number}" if number % 2 == 0 else "Titan"
    return Completion(f'```json\n{{"answer":\n "{answer}"}}\n```', "stop")


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("asked") / "questions.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in ASKED))
    return file


@pytest.fixture(scope="module")
def run(questions: Path) -> Path:
    llm = Scripted(direct=teacher)
    pyfast.answer(questions, llm=llm, system="direct", run=questions.parent / "run")
    return questions.parent / "run"


def written(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_examples_are_the_calls_of_right_questions(run: Path, tmp_path: Path) -> None:
    options = pyfast.DistillOptions(held_out=0.3)
    learned = pyfast.distill([run, pyfast.Run(run)], out=tmp_path / "out", options=options)
    assert dict(learned.runs) == {str(run): (20, 40)}
    examples, held_out = (written(tmp_path / "out" / f"{name}.jsonl") for name in ("examples", "held_out"))
    assert dict(learned.prompts) == {"direct": (len(examples), len(held_out))}
    assert {one["id"] for one in examples + held_out} == {f"q{n}" for n in range(0, 40, 2)}
    assert len(examples) + len(held_out) == 20 and 0 < len(held_out) < 15
    # The first prompt of each question, and the answer as constrained decoding writes it.
    for one in examples + held_out:
        calls = pyfast.Run(run).prompts(str(one["id"]))
        assert one["messages"] == [{"role": it.role, "content": it.content} for it in calls[0].messages or ()]
        assert one["reply"] == f'{{"answer": "Moon {str(one["id"])[1:]}"}}'
    assert learned.left_out == {"the LLM was asked again": 20, "the prompt occurred earlier": 20}


def test_all_the_judges_and_the_gold_of_another_file(run: Path, questions: Path, tmp_path: Path) -> None:
    def ids(**given: object) -> set[object]:
        gold = given.pop("gold", None)
        options = pyfast.DistillOptions(held_out=0, **given)  # type: ignore[arg-type]
        pyfast.distill(run, out=tmp_path / "out", gold=gold, options=options)  # type: ignore[arg-type]
        return {one["id"] for one in written(tmp_path / "out" / "examples.jsonl")}

    assert len(ids(right="all")) == 40
    titan = [{**one, "answers": ["Saturn's Titan"]} for one in ASKED]
    odd = {f"q{n}" for n in range(1, 40, 2)}
    assert ids(gold=titan, min_f1=0.6) == odd
    with pytest.raises(InputError, match="no training examples: no answer is correct"):
        ids(gold=titan)
    always = Scripted(direct=Completion('{"answer": "Moon 3"}', "stop"))
    other = pyfast.answer(questions, llm=always, system="direct", run=tmp_path / "other")
    prefers = Scripted(judge=lambda request: verdict(request))
    from pyfast.api.judgement import judge_runs

    judge_runs(run, tmp_path / "other", run=tmp_path / "judged", llm=prefers)
    assert ids(right=tmp_path / "judged") == odd
    third = pyfast.answer(questions, llm=always, system="direct", run=tmp_path / "third")
    for wrong, of in [(tmp_path / "judged", third), (tmp_path / "other", other)]:
        with pytest.raises(InputError, match=r"is not a judgement of|expected gold, all or the folder"):
            pyfast.distill(of, out=tmp_path / "out", options=pyfast.DistillOptions(right=wrong))


def verdict(request: Request) -> dict[str, str]:
    """Titan is the better answer."""
    first = 'First answer: "Titan"' in request.messages[-1].content
    second = 'Second answer: "Titan"' in request.messages[-1].content
    choice = "first" if first else "second" if second else "tie"
    names = ("comprehensiveness", "accuracy", "empowerment", "overall")
    return {f"{name}_explanation": "" for name in names} | dict.fromkeys(names, choice)


def test_questions_of_a_test_are_refused(run: Path, questions: Path, tmp_path: Path) -> None:
    test = tmp_path / "test.jsonl"

    def refused(*lines: dict[str, object]) -> str:
        test.write_text("".join(json.dumps(line) + "\n" for line in lines))
        called = CliRunner().invoke(
            app, ["distill", str(run), "--out", str(tmp_path / "o"), "--not-in", str(test)]
        )
        return str(called.exception or "")

    other = {"id": "q7", "question": "Which moon is red?", "answers": ["Io"]}
    assert refused(other) == ""  # the same id by chance, of another question
    assert refused(other, {**ASKED[3], "id": "x"}).endswith(
        " contains questions from the test file " + f"{test} (1, among them 'x')"
    )
    assert "among them 'q8'" in refused({"id": "q8", "answers": ["Io"]})  # a gold file without questions
    assert "among them 'y'" in refused({"id": "y", "question": "which MOON has number 9", "answers": ["Io"]})


def test_a_run_without_prompts_says_how_to_get_them(questions: Path, tmp_path: Path) -> None:
    llm, private = Scripted(direct=teacher), pyfast.RunOptions(keep_prompts=False)
    pyfast.answer(questions, llm=llm, system="direct", run=tmp_path / "private", options=private)
    with pytest.raises(InputError, match=r"--reuse .*private"):
        pyfast.distill(tmp_path / "private", out=tmp_path / "out")
    asked = len(llm.calls)
    again = pyfast.RunOptions(reuse=tmp_path / "private")
    pyfast.answer(questions, llm=llm, system="direct", run=tmp_path / "again", options=again)
    assert len(llm.calls) == asked
    assert pyfast.distill(tmp_path / "again", out=tmp_path / "out").runs[str(tmp_path / "again")] == (20, 40)
    with pytest.raises(InputError, match="in memory"):
        pyfast.distill(pyfast.answer(["a?"], llm=llm, system="direct"), out=tmp_path / "out")


def test_each_prompt_gets_its_share() -> None:
    message = (Message("user", "a"),)
    counts = {"plan": 5, "extract": 100, "answer": 30}
    every = [RunExample(f"{name}{n}", name, message, "b") for name, count in counts.items() for n in range(count)]

    def taken(size: int) -> Counter[str]:
        return Counter(it.prompt for it in balanced(every, size, 0))

    assert taken(12) == {"plan": 4, "extract": 4, "answer": 4}
    assert taken(65) == {"plan": 5, "extract": 30, "answer": 30}
    assert taken(1000) == counts and balanced(every, 1000, 0) == every
    assert balanced(every, 12, 0) == balanced(every, 12, 0) != balanced(every, 12, 1)


def test_the_words_of_a_question_decide_whether_it_is_held_out() -> None:
    shares = [sum(is_held_out(f"question {n}", share) for n in range(2000)) / 2000 for share in (0, 0.1, 0.5)]
    assert shares[0] == 0 and abs(shares[1] - 0.1) < 0.03 and abs(shares[2] - 0.5) < 0.05
    assert all(is_held_out(f"Who is {n}?", 0.5) == is_held_out(f"who  is {n}?", 0.5) for n in range(50))
    assert reply_of('Sure: {"a": [1,\n2], "b": "é"} ok') == '{"a": [1, 2], "b": "é"}'
    assert reply_of(" Paris \n") == "Paris"


def test_a_conversation_is_on_one_side(tmp_path: Path) -> None:
    turns = [{"question": f"Which moon has number {number}?", "answers": ["Io"]} for number in range(60)]
    talks = [{"id": f"talk{first}", "turns": turns[first : first + 3]} for first in range(0, 60, 3)]
    (tmp_path / "talks.jsonl").write_text("".join(json.dumps(talk) + "\n" for talk in talks))
    pyfast.answer(tmp_path / "talks.jsonl", llm=Scripted(direct=teacher), system="direct", run=tmp_path / "run")
    options = pyfast.DistillOptions(right="all", held_out=0.4)
    pyfast.distill(tmp_path / "run", out=tmp_path, options=options)
    sides = []
    for name in ("examples", "held_out"):
        numbers = re.findall(r"number (\d+)\?", (tmp_path / f"{name}.jsonl").read_text())
        sides.append({int(number) // 3 for number in numbers})
    assert sides[0] and sides[1] and not sides[0] & sides[1] and len(sides[0] | sides[1]) == 20


TRAINED = pyfast.DistillOptions(accumulation=4, epochs=2, lora_rank=4, held_out=0.3, learning_rate=1e-2)


def test_a_model_learns_the_replies(run: Path, tiny: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    pytest.importorskip("gguf")
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    steps = []
    learned = pyfast.distill(
        run, out=tmp_path, model=tiny, options=TRAINED, on_step=lambda point, total: steps.append(total)
    )
    assert learned.training is not None and learned.training.path == tmp_path / "adapter"
    examples = len(written(tmp_path / "examples.jsonl"))
    assert steps == [2 * math.ceil(examples / 4)] * len(steps) and len(steps) == len(learned.training.curve)
    before, after = learned.losses["direct"]
    assert after < before - 1
    # Independent: transformers' own loss of the whole conversation, with labels for the reply alone.
    import torch
    from transformers import AutoTokenizer

    tokenizer, plain = AutoTokenizer.from_pretrained(tiny), AutoModelForCausalLM.from_pretrained(tiny)
    taught = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tiny), learned.training.path).eval()
    for model, expected in ((plain, before), (taught, after)):
        losses = []
        for one in written(tmp_path / "held_out.jsonl"):
            prompt = tokenizer.apply_chat_template(one["messages"], tokenize=False, add_generation_prompt=True)
            reply = tokenizer(f"{one['reply']}{tokenizer.eos_token}", add_special_tokens=False).input_ids
            asked = tokenizer(prompt, add_special_tokens=False).input_ids
            inputs, labels = torch.tensor([asked + reply]), torch.tensor([[-100] * len(asked) + reply])
            with torch.inference_mode():
                losses.append(model(input_ids=inputs, labels=labels).loss.item())
        assert sum(losses) / len(losses) == pytest.approx(expected, rel=1e-3)
    recipe = json.loads((tmp_path / "recipe.json").read_text())
    assert recipe["recipe"]["runs"] == {str(run): [20, 40]} and recipe["examples"] == examples
    assert recipe["recipe"]["prompts"] == {"direct": list(learned.prompts["direct"])}
    with pytest.raises(InputError, match=r"all .* examples have more than 20 tokens"):
        pyfast.distill(
            run, out=tmp_path / "b", model=tiny, options=pyfast.DistillOptions(max_tokens=20, held_out=0)
        )


@pytest.mark.slow(suite="training")
def test_a_training_that_is_killed_ends_with_the_same_bits(run: Path, tiny: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    given = ["--model", tiny, "--accumulation", 1, "--epochs", 5, "--lora-rank", 4, "--size", 16]
    called = [*map(str, [sys.executable, "-m", "pyfast", "distill", run, *given, "--out"])]
    subprocess.run([*called, tmp_path / "whole"], check=True, capture_output=True)
    with subprocess.Popen(
        [*called, tmp_path / "parts"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as it:
        while not (tmp_path / "parts" / "checkpoint.safetensors").exists():
            assert it.poll() is None
            time.sleep(0.01)
        it.send_signal(signal.SIGKILL)
    assert not (tmp_path / "parts" / "recipe.json").exists()
    done = subprocess.run([*called, tmp_path / "parts"], check=True, capture_output=True, text=True)
    for name in ("adapter_model.safetensors", "adapter.gguf"):
        whole, parts = (tmp_path / folder / "adapter" / name for folder in ("whole", "parts"))
        assert whole.read_bytes() == parts.read_bytes()
    assert "before" in done.stdout and "steps, loss" in done.stdout


@pytest.mark.slow(suite="training")
def test_llama_cpp_and_transformers_agree_on_an_adapter(tmp_path: Path) -> None:
    """The next token after a prompt: of the real small model (in 4 bits) with an adapter that changes it much."""
    for package in ("peft", "gguf", "xllamacpp"):
        pytest.importorskip(package)
    import torch
    from models import converted_model

    from pyfast.llm.llamacpp import embedded_model, import_runtime, start_server
    from pyfast.llm.local import chat_tokens
    from pyfast.llm.transformers import open_model
    from pyfast.training.lora import ALL_PROJECTIONS, with_lora, write_gguf

    folder = converted_model()
    model, tokenizer = open_model(folder)
    torch.manual_seed(1)
    model = with_lora(model, rank=8, alpha=16, targets=ALL_PROJECTIONS).eval()
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "lora_B" in name:  # most in those projections whose rows llama.cpp has in another order
                weights.normal_(0, 0.6 if "q_proj" in name or "k_proj" in name else 0.03)
    model.save_pretrained(tmp_path)
    write_gguf(tmp_path, folder, tmp_path / "adapter.gguf")
    asked = Message("user", "Name the capital of France.")
    tokens = torch.tensor([chat_tokens(tokenizer, [asked])])
    with torch.inference_mode():
        taught = torch.log_softmax(model(tokens).logits[0, -1], -1)
        with model.disable_adapter():
            plain = torch.log_softmax(model(tokens).logits[0, -1], -1)
    import_runtime()
    body = {"messages": [{"role": asked.role, "content": asked.content}], "max_tokens": 1, "temperature": 0}
    for adapter, own, other in ((None, plain, taught), (tmp_path / "adapter.gguf", taught, plain)):
        server, _ = start_server(embedded_model(), adapter, 1, 256, 2)
        replies: list[bytes] = []
        asking = json.dumps({**body, "logprobs": True, "top_logprobs": 10}).encode()
        server.handle_chat_completions(asking, lambda reply, to=replies: bool(to.append(reply)))
        (first,) = json.loads(replies[0])["choices"][0]["logprobs"]["content"]
        found = {each["id"]: each["logprob"] for each in first["top_logprobs"]}
        gaps = [[abs(logprob - float(of[id])) for id, logprob in found.items()] for of in (own, other)]
        assert max(gaps[0]) < 0.5 and max(gaps[1]) > 2, gaps
