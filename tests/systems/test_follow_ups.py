"""Later turns, rewritten or resolved for systems of single questions; and the entities of their evidence."""

import json
from pathlib import Path
from typing import Any

import pytest
from grouped import grouped
from runs import Watched
from scripted import Scripted
from typer.testing import CliRunner

import pyfast
from pyfast.commands.cli import app
from pyfast.engine import Record
from pyfast.engine.configuration import read_configuration
from pyfast.errors import InputError
from pyfast.evaluation import evaluate
from pyfast.llm import Request

TURNS = [
    {"id": "t1", "question": "Who discovered Titan?", "answers": ["Christiaan Huygens"]},
    {"id": "t2", "question": "When was he born?", "answers": ["1629"]},
    {"id": "t3", "question": "And where?", "answers": ["The Hague"]},
]
TALK = {"id": "talk", "turns": TURNS}
OWN = {"When was he born?": "When was Huygens born?", "And where?": "Where was Huygens born?"}


def last(request: Request) -> str:
    return request.messages[-1].content.rpartition("The last question: ")[2].splitlines()[0]


def rewriting(**replies: Any) -> Scripted:
    own: dict[str, Any] = {"rewrite_turn": lambda request: {"question": OWN[last(request)]}}
    return Scripted(**{**own, "answer": {"answer": "Christiaan Huygens"}, **replies})


def ask(small: pyfast.Index, llm: Any, **options: Any) -> pyfast.Run:
    given: dict[str, Any] = {"system": "rag", "follow_ups": "rewrite", "budget": {"attempts": 1}}
    return pyfast.answer([TALK, "Who found Phobos?"], index=small, llm=llm, **grouped(**{**given, **options}))


def asked(llm: Scripted) -> list[str]:
    return [said.rpartition("Question: ")[2] for said in llm.users("answer")]


def test_later_turns_become_questions_of_their_own(small: pyfast.Index) -> None:
    llm = rewriting()
    run = ask(small, llm, concurrency=1)
    assert asked(llm) == ["Who discovered Titan?", *OWN.values(), "Who found Phobos?"]
    assert [record.trace.get("asked") for record in run.records] == [None, *OWN.values(), None]
    turns = "Question: Who discovered Titan?\nAnswer: Christiaan Huygens\n"
    assert llm.users("rewrite_turn")[0] == f"{turns}The last question: When was he born?"
    assert llm.users("rewrite_turn")[1].startswith(
        f"{turns}Question: When was he born?\nAnswer: Christiaan Huygens\n"
    )
    bare = [pyfast.answer([text], index=small, llm=rewriting(), system="rag").records[0] for text in OWN.values()]
    for record, single in zip(run.records[1:3], bare, strict=True):
        assert record.evidence == single.evidence  # the search is for what it became


def test_terms_that_are_left_out_join_the_turn(small: pyfast.Index) -> None:
    """Those alone that earlier turns said, and the turn does not."""
    terms = ["titan", "Christiaan Huygens", "Saturn", " ", "Titan", "born?", "titan"]
    llm = Scripted(resolve_turn={"terms": terms}, answer={"answer": "Christiaan Huygens"})
    ask(small, llm, follow_ups="resolve", concurrency=1)
    assert asked(llm)[1] == "When was he born? (titan, Christiaan Huygens, Titan)"
    none = Scripted(resolve_turn={"terms": []}, answer={"answer": "x"})
    ask(small, none, follow_ups="resolve", concurrency=1)
    assert asked(none)[:3] == [turn["question"] for turn in TURNS]


@pytest.mark.parametrize("how", ["rewrite", "resolve"])
@pytest.mark.parametrize("reply", ["no JSON", {"question": "  "}, {"terms": 3}, {}])
def test_without_one_the_turn_is_asked_as_it_is(small: pyfast.Index, how: str, reply: Any) -> None:
    llm = Scripted(rewrite_turn=reply, resolve_turn=reply, answer={"answer": "x"})
    run = ask(small, llm, follow_ups=how, concurrency=1)
    assert asked(llm)[:3] == [turn["question"] for turn in TURNS]
    fits = how == "rewrite" and reply == {"question": "  "}
    assert run.status.fall_backs == ({} if fits else {f"{how}_turn": 2})
    strict = ask(small, llm, follow_ups=how, strict=True)
    assert strict.status.states == ({"answered": 4} if fits else {"answered": 2, "failed": 2})


def test_long_conversations_are_cut_from_the_front(small: pyfast.Index) -> None:
    long = {"id": "l", "turns": [{"id": f"l{i}", "question": f"What of {i}? {'word ' * 300}"} for i in range(12)]}
    llm = rewriting(rewrite_turn={"question": "Who?"})
    llm.context_window = 3000
    pyfast.answer([long], index=small, llm=llm, system="rag", options=pyfast.RunOptions(follow_ups="rewrite"))
    said = llm.users("rewrite_turn")[-1]
    assert "What of 10?" in said and "What of 2?" not in said and len(said) < 9000


def test_it_is_part_of_what_a_run_is(small: pyfast.Index, tmp_path: Path) -> None:
    run = ask(small, rewriting(), run=tmp_path / "run", concurrency=1)
    described = read_configuration(tmp_path / "run" / "run.toml")
    assert described["system"]["set_follow_ups"] == "rewrite"
    assert [call.prompt for call in run.prompts("t2")] == ["rewrite_turn", "answer"]
    with pytest.raises(InputError, match="follow_ups"):
        ask(small, rewriting(), run=tmp_path / "run", follow_ups="off")
    with pytest.raises(InputError, match="graph_convqa handles conversations itself"):
        ask(small, rewriting(), system="graph_convqa", settings={"graph": False, "memory": "off"})
    with pytest.raises(InputError, match="expected one of off, rewrite, resolve, got 'redo'"):
        ask(small, rewriting(), follow_ups="redo")


def test_its_prompt_can_be_replaced_and_has_a_role(small: pyfast.Index, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text('[rewrite_turn]\nsystem = "Say it alone."\n')
    planner, default = Watched(lambda request: {"question": "Who was Huygens?"}), rewriting()
    sent: list[Request] = []
    planner.reply = lambda request: sent.append(request) or {"question": "Who was Huygens?"}  # type: ignore[func-returns-value]
    ask(small, {"default": default, "plan": planner}, prompts=tmp_path / "own.toml", concurrency=1)
    assert [request.messages[0].content for request in sent] == ["Say it alone."] * 2
    assert "rewrite_turn" not in default.kinds and "Who was Huygens?" in asked(default)


@pytest.mark.parametrize("system", ["rag", "n2n", "hseq"])
def test_entities_of_any_systems_evidence_normalise_its_answers(
    small: pyfast.Index, tmp_path: Path, system: str
) -> None:
    run = ask(small, "instant", system=system, follow_ups="off", run=tmp_path / "run")
    *turns, single = run.records
    assert "entities" not in single.trace and all("Titan" in turn.trace["entities"] for turn in turns[:1])
    names = {name for record in turns for name in record.trace["entities"]}
    assert {"Titan", "Saturn"} <= names and all(isinstance(name, str) and name.strip() for name in names)

    gold = [{**TALK, "turns": [{**TURNS[0], "answers": ["Titan"]}]}]

    def scored(answer: str) -> float:
        record = Record("t1", "answered", answer, trace_json=json.dumps(turns[0].trace).encode())
        return evaluate([record], gold).rows[0]["h@1"].value

    assert (scored("Titan"), scored("titn"), scored("Xyzzy plugh")) == (1.0, 1.0, 0.0)


def test_a_run_that_drops_what_came_before_says_so(small: pyfast.Index, caplog: pytest.LogCaptureFixture) -> None:
    told = "rag reads 2 later turns without the turns before them; see the option follow_ups"
    ask(small, "instant", follow_ups="off")
    assert [record.getMessage() for record in caplog.records].count(told) == 1
    caplog.clear()
    ask(small, rewriting(), follow_ups="rewrite")
    assert told not in caplog.text


async def test_an_engine_does_so_too(small: pyfast.Index) -> None:
    llm = rewriting()
    async with pyfast.Engine(small, llm) as engine:
        before = [("Who discovered Titan?", "Christiaan Huygens")]
        record = await engine.answer("When was he born?", system="rag", history=before)
        assert record.trace["asked"] == OWN["When was he born?"]
        own = {"graph": False, "memory": "off"}
        itself = await engine.answer("When was he born?", system="graph_convqa", settings=own, history=before)
        assert "asked" not in itself.trace


def test_the_command(small: pyfast.Index, tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text(json.dumps(TALK) + "\n")
    given = ["answer", str(tmp_path / "q.jsonl"), "--index", str(small.folder), "--run", str(tmp_path / "run")]
    shown = CliRunner().invoke(app, [*given, "--system", "rag", "--llm", "instant", "--follow-ups", "resolve"])
    assert shown.exit_code == 0, shown.output
    assert [record.state for record in pyfast.Run(tmp_path / "run").records] == ["answered"] * 3
