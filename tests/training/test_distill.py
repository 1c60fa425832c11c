"""What a model learns from finished runs: the examples that `pyfast distill` chooses."""

import json
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
    assert learned.left_out == {"the LLM was asked again": 20, "the same prompt came before": 20}


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
    with pytest.raises(InputError, match="no question of the runs came out right"):
        ids(gold=titan)
    always = Scripted(direct=Completion('{"answer": "Moon 3"}', "stop"))
    other = pyfast.answer(questions, llm=always, system="direct", run=tmp_path / "other")
    prefers = Scripted(judge=lambda request: verdict(request))
    from pyfast.api.judgement import judge_runs

    judge_runs(run, tmp_path / "other", run=tmp_path / "judged", llm=prefers)
    assert ids(right=tmp_path / "judged") == odd
    third = pyfast.answer(questions, llm=always, system="direct", run=tmp_path / "third")
    for wrong, of in [(tmp_path / "judged", third), (tmp_path / "other", other)]:
        with pytest.raises(InputError, match=r"did not judge|expected gold, all or the folder"):
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
        "has 1 questions of " + f"{test}, the first of them 'x'"
    )
    assert "the first of them 'q8'" in refused({"id": "q8", "answers": ["Io"]})  # a gold file without questions
    assert "the first of them 'y'" in refused(
        {"id": "y", "question": "which MOON has number 9", "answers": ["Io"]}
    )


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
