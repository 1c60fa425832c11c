"""`pyfast ask`, and `on_step`, which it shows: each call when it begins and ends; nothing acts on the terminal."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from scripted import Scripted, plan
from typer.testing import CliRunner

import pyfast
from pyfast.commands.cli import app
from pyfast.engine import Step
from pyfast.errors import CallError

TITAN = "Who discovered Titan?"
HOSTILE = "Huygens\x1b[2J\x07 [red]of[/red] :smile: \u202eTitan\nand more"


class Talker(Scripted):
    """What `--llm test_cli_ask:Talker` names: its reply is the model's, or the error that it makes."""

    def __init__(self, reply: str = "Christiaan Huygens", **options: Any) -> None:
        fails, said = reply == "fail", HOSTILE if reply == "hostile" else reply
        refused = {"sorry": "I cannot plan"}
        super().__init__(
            plan=refused if reply == "no plan" else plan("moons of Saturn", "discoverer of {entity1}"),
            extract={"entity": "Titan"},
            answer=CallError("the model is\x1b[2J ill") if fails else {"answer": said},
        )


def ask(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["ask", *map(str, arguments)])


def steps_of(index: pyfast.Index, llm: Any, **given: Any) -> tuple[pyfast.Record, list[Step]]:
    told: list[Step] = []
    run = pyfast.answer(
        [{"id": "q", "question": TITAN}], index=index, llm=llm, watch=pyfast.Watch(on_step=told.append), **given
    )
    return run.records[0], told


def test_each_call_is_told_when_it_begins_and_when_it_ends(small: pyfast.Index) -> None:
    llm = Talker()
    record, told = steps_of(small, llm, system="n2n")
    ended = [step for step in told if step.seconds is not None]
    begun = [(step.name, step.role, step.asked) for step in told if step.seconds is None]
    assert {step.question for step in told} == {"q"} and not any(step.error for step in told)
    assert sorted(begun) == sorted((step.name, step.role, step.asked) for step in ended)
    assert [step.name for step in ended if step.role] == llm.kinds == ["plan", "extract", "answer"]
    assert all(step.seconds is not None and step.seconds >= 0 for step in ended)
    assert json.loads(ended[0].reply) == plan("moons of Saturn", "discoverer of {entity1}")
    found = [step for step in ended if step.passages is not None]
    assert found and all(step.asked for step in found if step.name.startswith("search"))
    assert len(record.evidence) == found[-1].passages


def test_steps_are_those_of_the_ledger_and_change_no_answer(small: pyfast.Index) -> None:
    silent = pyfast.answer([TITAN], index=small, llm="instant", system="n2n")
    told: list[Step] = []
    run = pyfast.answer([TITAN], index=small, llm="instant", system="n2n", watch=pyfast.Watch(on_step=told.append))
    assert run.records[0].line() == silent.records[0].line()
    assert run.records[0].details() == silent.records[0].details()
    counted = {stage.name: stage.calls for stage in run.status.stages}
    names = [step.name for step in told if step.seconds is not None]
    assert {name: names.count(name) for name in set(names)} == counted


def test_a_call_that_fails_is_told(small: pyfast.Index) -> None:
    record, told = steps_of(small, Talker("fail"), system="rag")
    assert record.state == "failed"
    assert [(step.name, step.error) for step in told if step.error] == [("answer", record.reason)]
    record, told = steps_of(small, Talker(), system="rag", settings={"k": 1}, budget={"steps": 1})
    assert [(step.name, step.passages) for step in told if step.seconds is not None] == [("search", 1)]


def test_a_plan_that_is_refused_is_told(small: pyfast.Index) -> None:
    record, told = steps_of(small, Talker("no plan"), system="n2n")
    (fell_back,) = (step for step in told if step.fell_back)
    assert (fell_back.name, fell_back.fell_back) == ("plan", record.trace["plan_degraded"])
    assert fell_back.fell_back.endswith('; the reply begins "{\\"sorry\\": \\"I cannot plan\\"}"')
    how = ("--llm", "test_cli_ask:Talker", "--llm-option", 'reply="no plan"')
    without = fell_back.fell_back.partition("; the reply")[0]
    for options, said in ((("--verbose",), fell_back.fell_back), ((), without)):
        done = ask(small.folder, TITAN, *how, *options)
        assert done.exit_code == 0, done.output
        line = next(line for line in done.stderr.splitlines() if "continues without a usable reply" in line)
        assert line == f"plan: the system continues without a usable reply: {said}"
        assert ("I cannot plan" in done.stderr) == bool(options)


def test_the_answer_is_on_stdout_and_the_steps_on_stderr(small: pyfast.Index) -> None:
    done = ask(small.folder, TITAN, "--system", "rag", "--set", "k=3", "--llm", "test_cli_ask:Talker")
    assert done.exit_code == 0, done.output
    first, *sources = done.stdout.split("\n\n")
    assert first == "Christiaan Huygens"
    (record,) = pyfast.answer([TITAN], index=small, llm=Talker(), system="rag", settings={"k": 3}).records
    assert len(sources) == len(record.evidence) == 3
    for number, (source, found) in enumerate(zip(sources, record.evidence, strict=True), start=1):
        head, snippet = source.strip().split("\n   ")
        title = small.title(found.uri)
        assert title and head == f"{number}. {title} ({found.uri}), score {found.score:.3f}"
        assert " ".join(found.line.split()).startswith(snippet.removesuffix("…"))
    names = [line.partition(",")[0] for line in done.stderr.splitlines()[:-1]]
    assert names == ["search", "narrate", "answer (answer)", "cite"]
    assert f"3 passages for {TITAN}" in done.stderr and "1 LLM call;" in done.stderr


def test_the_instant_llm_answers_as_through_the_api(small: pyfast.Index) -> None:
    done = ask(small.folder, TITAN, "--llm", "instant", "--json")
    assert done.exit_code == 0 and done.stdout.count("\n") == 1
    (record,) = pyfast.answer([TITAN], index=small, llm="instant", system="n2n").records
    assert json.loads(done.stdout) == record.as_json()


@pytest.mark.parametrize("as_json", [False, True])
def test_documents_and_models_do_nothing_to_the_terminal(as_json: bool, tmp_path: Path) -> None:
    index = pyfast.build_index([{"id": HOSTILE, "title": HOSTILE, "text": f"Titan: {HOSTILE}"}], tmp_path / "IDX")
    how = ("--system", "rag", "--llm", "test_cli_ask:Talker", "--llm-option", "reply=hostile")
    done = ask(index.folder, f"{TITAN} {HOSTILE}", *how, *(["--json"] if as_json else []))
    assert done.exit_code == 0
    assert (done.stdout + done.stderr).replace("\n", "").isprintable()
    if as_json:
        (found,) = json.loads(done.stdout)["evidence"]
        assert found["uri"] == HOSTILE and HOSTILE in found["snippet"]
    else:
        assert done.stdout.startswith("Huygens [red]of[/red] :smile: Titan\nand more\n\n1. Huygens [2J  [red]of")


def test_a_question_that_fails_is_one_error(small: pyfast.Index) -> None:
    how = ("--system", "rag", "--llm", "test_cli_ask:Talker", "--llm-option", "reply=fail")
    done = ask(small.folder, TITAN, *how)
    assert isinstance(done.exception, CallError) and "ill" in str(done.exception) and "\x1b" not in done.stderr
    done = ask(small.folder, TITAN, *how, "--json")
    assert isinstance(done.exception, CallError) and json.loads(done.stdout)["state"] == "failed"


def test_it_may_abstain_and_needs_no_evidence(small: pyfast.Index) -> None:
    how = ("--system", "rag", "--llm", "test_cli_ask:Talker", "--llm-option", "reply=")
    done = ask(small.folder, TITAN, *how)
    assert done.exit_code == 0 and done.stdout.startswith("no answer: the evidence does not contain one\n\n1. ")
    alone = ask(small.folder, TITAN, "--system", "direct", "--llm", "instant")
    assert alone.exit_code == 0 and alone.stdout.count("\n") == 1


def test_titles_are_found_by_uri(small: pyfast.Index) -> None:
    corpus = small.corpus
    for source in range(corpus.documents):
        assert small.title(corpus.uri(source)) == corpus.title(source)
    assert small.title("no such document") == ""
