"""A model for each role, as it is given: in Python, on the command line, to servers of their own."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hostile_server import allow, counts, hostile
from processes import Session
from runs import Watched, answers, traces
from typer.testing import CliRunner

import pyfast
from pyfast.api.judgement import judge_runs
from pyfast.commands.arguments import read_models
from pyfast.commands.cli import app
from pyfast.engine import Answer
from pyfast.engine.configuration import read_configuration
from pyfast.errors import InputError
from pyfast.llm import Request, dialogue
from pyfast.systems import System, load_system
from pyfast.systems.hseq.actions import select_prompt
from pyfast.systems.hseq.guidance import GUIDE
from pyfast.systems.hseq.head import head_prompt

ASKED = ["Who discovered Titan?", "Which moons has Saturn?", "When did Huygens land?"]
ITERATOR, HEAD = {select_prompt(1, 1).system}, {GUIDE.system, head_prompt(1).system}


class Model(Watched):
    """With a name, and how often it was started and closed."""

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__(**options)
        self.spec = self.name = name
        self.started = self.closed = 0

    @property
    def fingerprint(self) -> str:
        return self.name

    async def start(self) -> None:
        self.started += 1

    async def close(self) -> None:
        self.closed += 1


@pytest.mark.guarantee("G1")
def test_the_servers_of_hseqs_pair_get_their_own_prompts_also_after_kills(
    small: pyfast.Index, tmp_path: Path
) -> None:
    lines = (json.dumps({"id": f"q{i}", "question": f"{ASKED[i % 3]} ({i})"}) for i in range(8))
    (tmp_path / "q.jsonl").write_text("\n".join(lines))

    def session(name: str) -> Session:
        given: list[Any] = [tmp_path / "q.jsonl", "--index", small.folder, "--system", "hseq", "--concurrency", 3]
        given += ["--llm", f"openai:head@{head}", "--llm", f"pick=openai:iterator@{iterator}"]
        given += ["--llm-option", "timeout_s=60", "--llm-option", "pick.timeout_s=50"]
        return Session(tmp_path / name, *given)

    with hostile() as head, hostile() as iterator:
        whole = session("whole")
        assert whole.ended() == 0, whole.told
        asked = [counts(url) for url in (head, iterator)]
        assert [it["systems"].keys() for it in asked] == [HEAD, ITERATOR]
        for url, server in zip((head, iterator), asked, strict=True):
            allow(url, server["requests"] + 7)
        killed = session("killed")
        killed.until(lambda: counts(iterator)["requests"] > asked[1]["requests"] + 5)
        assert killed.process.is_alive(), killed.told
        killed.kill()
        for url in (head, iterator):
            allow(url, 10**6)
        last = session("killed")
        assert last.ended() == 0, last.told
        again = [counts(url) for url in (head, iterator)]
    assert [it["systems"].keys() for it in again] == [HEAD, ITERATOR]
    assert [it["bodies"].keys() for it in again] == [it["bodies"].keys() for it in asked]
    assert answers(tmp_path / "killed") == answers(tmp_path / "whole")
    assert traces(tmp_path / "killed") == traces(tmp_path / "whole")
    assert pyfast.verify(tmp_path / "killed").passed


def test_each_model_is_started_once_and_stays_loaded(small: pyfast.Index, tmp_path: Path) -> None:
    head, iterator = Model("head"), Model("iterator", context_window=20_000)
    llm = {"default": head, "pick": iterator, "judge": head}
    for run in ("a", "b"):
        pyfast.answer(ASKED, index=small, llm=llm, system="hseq", run=tmp_path / run)
    assert (head.started, iterator.started) == (1, 1) and (head.closed, iterator.closed) == (0, 0)
    assert head.given == 2 * 2 * len(ASKED) and iterator.given
    assert read_configuration(tmp_path / "a" / "run.toml")["llm"] == {
        "fingerprint": "head",
        "context_window": 1_000_000,
        "pick_fingerprint": "iterator",
        "pick_context_window": 20_000,
        "judge_fingerprint": "head",
        "judge_context_window": 1_000_000,
    }
    status = pyfast.Run(tmp_path / "a").status
    roles = {stage.name: stage.role for stage in status.stages}
    assert (roles["guide"], roles["select"], roles["head"], roles["canonicalize"]) == (
        "plan",
        "pick",
        "answer",
        "",
    )


def test_with_one_model_for_all_the_answers_are_those_of_that_model(small: pyfast.Index) -> None:
    alone = pyfast.answer(ASKED, index=small, llm="instant", system="hseq")
    texts = {"default": "instant", "pick": "instant"}
    options = {"slots": 8, "pick.slots": 4}
    several = pyfast.answer(ASKED, index=small, llm=texts, llm_options=options, system="hseq")
    assert list(alone.records) == list(several.records)


@pytest.mark.guarantee("G2")
def test_another_model_for_a_role_is_refused_and_shown(small: pyfast.Index, tmp_path: Path) -> None:
    def go(**llm: Any) -> None:
        pyfast.answer(ASKED, index=small, llm=llm, system="hseq", run=tmp_path / "run")

    go(default=Model("head"), pick=Model("iterator"))
    go(default=Model("head"), pick=Model("iterator"))
    for other, shown in (
        ({"pick": Model("other")}, "llm.pick_fingerprint was iterator and is now other"),
        ({}, "llm.pick_fingerprint was iterator and is now not set"),
        ({"pick": Model("iterator"), "plan": Model("p")}, "llm.plan_fingerprint was not set and is now p"),
        ({"pick": Model("iterator", context_window=9)}, "llm.pick_context_window was 1000000 and is now 9"),
    ):
        with pytest.raises(InputError, match=shown):
            go(default=Model("head"), **other)


@pytest.mark.parametrize(
    ("llm", "options", "fault"),
    [
        ({}, {}, "no model was given"),
        ({"default": "instant", "iterator": "instant"}, {}, "unknown role 'iterator'; known: default, plan"),
        (
            {"default": "instant", "think": "instant"},
            {},
            "hseq has no prompt with the role 'think'; its roles are: plan, pick, answer, judge",
        ),
        ({"pick": "instant", "plan": "instant"}, {}, "hseq: no LLM for its roles answer, judge"),
        (dict.fromkeys(("default", "plan", "pick", "answer", "judge"), "instant"), {}, "with the role 'default'"),
        ({"default": "instant"}, {"pick.slots": 3}, "no LLM was given for the role 'pick'"),
        ({"default": "instant", "pick": "instant"}, {"pick.slot": 3}, "does not accept an option"),
        ({"default": "instant", "pick": Model("m")}, {"pick.slots": 3}, "an LLM given as a string"),
        ({"default": "instant"}, {"iterator.slots": 3}, "unknown role 'iterator'"),
    ],
)
def test_what_does_not_fit_is_refused(
    llm: dict[str, Any], options: dict[str, Any], fault: str, small: pyfast.Index
) -> None:
    with pytest.raises(InputError, match=fault):
        pyfast.answer(ASKED, index=small, llm=llm, llm_options=options, system="hseq")


def test_the_default_may_be_left_out_where_each_role_has_a_model(small: pyfast.Index) -> None:
    llm: dict[str, str] = dict.fromkeys(load_system("hseq").roles, "instant")
    assert pyfast.answer(ASKED[:1], index=small, llm=llm, system="hseq").status.states.get("failed") is None


def test_a_system_that_knows_nothing_of_roles_asks_the_default(small: pyfast.Index) -> None:
    async def answer(question: Any, ctx: Any, settings: Any) -> Answer:
        return Answer((await ctx.complete(Request(dialogue(question.text), 9), "own")).text)

    system = System("theirs", answer, load_system("direct").settings, (), needs_index=False)
    assert system.roles == {"default": ()}
    (record,) = pyfast.answer(ASKED[:1], llm="instant", system=system).records
    assert record.state == "answered"
    with pytest.raises(InputError, match="theirs has no prompt with the role 'answer'"):
        pyfast.answer(ASKED[:1], llm={"default": "instant", "answer": "instant"}, system=system)


def test_only_roles_with_the_same_model_reuse_replies(small: pyfast.Index, tmp_path: Path) -> None:
    def asked(name: str, plan: str, *reuse: Path) -> list[int]:
        llm = {"default": Model("head"), "plan": Model(plan), "pick": Model("i")}
        options = pyfast.RunOptions(reuse=reuse)
        pyfast.answer(ASKED, index=small, llm=llm, system="hseq", run=tmp_path / name, options=options)
        return [model.given for model in llm.values()]

    assert asked("first", "planner")[1] == len(ASKED)
    assert asked("second", "planner", tmp_path / "first") == [0, 0, 0]
    assert asked("third", "other", tmp_path / "first")[1] == len(ASKED)


def test_an_engine_has_the_models_of_all_its_systems(small: pyfast.Index) -> None:
    head, iterator = Model("head"), Model("iterator")

    async def main(**llm: Model) -> list[str]:
        async with pyfast.Engine(small, llm) as engine:
            return [(await engine.answer(ASKED[0], system=system)).state for system in ("hseq", "rag")]

    assert asyncio.run(main(default=head, pick=iterator)) == ["answered"] * 2
    assert head.given == 3 and iterator.given and (head.started, head.closed) == (1, 1) == (iterator.started, 1)
    with pytest.raises(InputError, match="hseq: no LLM for its roles plan, answer, judge"):
        asyncio.run(main(pick=iterator))


def test_judges_and_readers_have_roles_too(small: pyfast.Index, tmp_path: Path) -> None:
    for k in (1, 9):
        llm = Model(str(k), reply=lambda _, k=k: {"answer": str(k)})
        pyfast.answer(ASKED, llm=llm, system="direct", run=tmp_path / str(k))
    judge = Model("judge")
    runs = tmp_path / "1", tmp_path / "9"
    assert judge_runs(*runs, run=tmp_path / "judged", llm={"judge": judge}).failed == 0
    assert judge.given == 2 * len(ASKED)
    with pytest.raises(InputError, match="judge has no prompt with the role 'read'"):
        judge_runs(*runs, run=tmp_path / "again", llm={"default": judge, "read": "instant"})
    with pytest.raises(InputError, match="the extraction has no prompt with the role 'judge'"):
        pyfast.build_knowledge(small, {"default": "instant", "judge": judge})


def test_the_command_line_reads_roles_before_the_equals_sign(small: pyfast.Index, tmp_path: Path) -> None:
    given = ["openai:m@http://host/v1?a=b", "pick=openai:m@http://host?c=d", "answer=instant"]
    assert read_models(given) == {"default": given[0], "pick": "openai:m@http://host?c=d", "answer": "instant"}
    for twice in (["pick=instant", "pick=instant"], ["instant", "default=instant"]):
        with pytest.raises(InputError, match=r"--llm: the role .* is given twice"):
            read_models(twice)
    (tmp_path / "q.jsonl").write_text('{"id": "a", "question": "Who discovered Titan?"}')
    asking = [str(part) for part in ("answer", tmp_path / "q.jsonl", "--index", small.folder, "--system", "hseq")]

    def told(*llms: str) -> str:
        options = [part for llm in llms for part in ("--llm", llm)]
        run = ["--run", str(tmp_path / "run")]
        return CliRunner().invoke(app, [*asking, *run, *options], catch_exceptions=False).stdout

    with pytest.raises(InputError, match="hseq: no LLM for its roles plan, answer, judge"):
        told("pick=instant")
    assert "1 question: 1 " in told("instant", "pick=instant")
    with pytest.raises(InputError, match="pick_fingerprint was instant:2 and is now not set"):
        told("instant")
    shown = CliRunner().invoke(app, ["status", str(tmp_path / "run")]).stdout
    assert re.search(r"select +pick +4 ", shown) and re.search(r"head +answer +1 ", shown)
