"""A model for each role: who is asked, what roles share, and what a run keeps apart."""

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fast_clock import run_fast
from runs import Watched, answer_all, answers, ask_about, go, traces

from pyfast.engine import Answer, Budget, Context, Prompt, Question, Record, read_status
from pyfast.engine.models import Models
from pyfast.engine.outages import Waiting
from pyfast.errors import InputError, LLMUnavailableError, OutageError
from pyfast.llm import LLM, Completion, Request, Role
from pyfast.systems.prompts import AnswerFields

ROLES: Sequence[Role] = ("default", "plan", "pick", "answer")
SAME = {role: Prompt(role, "", "$question", AnswerFields, max_tokens=20, role=role) for role in ROLES}


class Named(Watched):
    """Says its name."""

    def __init__(self, name: str, window: int = 8192, slots: int = 4) -> None:
        super().__init__(lambda request: {"answer": name}, context_window=window, slots=slots)
        self.name = name

    @property
    def fingerprint(self) -> str:
        return self.name


async def of_each_role(question: Question, ctx: Context) -> Answer:
    """The same request to every role, at once."""
    replies = await asyncio.gather(*(ctx.generate(prompt, question=question.text) for prompt in SAME.values()))
    return Answer(" ".join(reply.answer for reply in replies))


def answered(llms: dict[Role, LLM], number: int = 3, **options: Any) -> list[Record]:
    records: list[Record] = []
    work = answer_all(
        iter(ask_about(number)), options.pop("ask", of_each_role), None, llms, records.append, **options
    )
    run_fast(asyncio.wait_for(work, 1e5), 200.0)
    return records


def test_each_role_is_answered_by_its_own_model_and_the_rest_by_the_default() -> None:
    assert {it.answer for it in answered({"default": Named("a"), "pick": Named("b")})} == {"a a b a"}


def test_a_role_without_a_model_or_a_default_ends_the_run() -> None:
    with pytest.raises(InputError, match="there is no LLM for the role 'default', and no default"):
        answered({"plan": Named("a"), "pick": Named("b"), "answer": Named("b")})


def test_roles_with_one_model_share_its_places_and_outages() -> None:
    a, b = Named("a", slots=3), Named("b")
    models = Models({"default": a, "plan": a, "pick": b, "judge": b})
    assert models.of("default") is models.of("plan") is models.of("read")
    assert models.of("pick") is models.of("judge") is not models.of("plan")
    assert models.of("plan").llm is a and models.of("pick").llm is b


def test_text_fits_the_window_of_the_prompts_own_model() -> None:
    seen: list[int] = []

    async def look(question: Question, ctx: Context) -> Answer:
        for prompt in (SAME["plan"], SAME["pick"]):
            seen.extend((ctx.text_budget(prompt), ctx.text_budget_to_repeat(prompt)))
            seen.append(ctx.repeating(prompt, "x" * 9000).max_tokens)
        assert ctx.text_budget_to_repeat() == ctx.text_budget_to_repeat(SAME["plan"])
        assert (ctx.context_window, ctx.context_window_of("pick")) == (4096, 40960)
        await ctx.generate(SAME["pick"], question="y" * 500_000)  # far too large for the default's
        return Answer("")

    (record,) = answered({"default": Named("a", 4096), "pick": Named("b", 40960)}, 1, ask=look)
    assert record.state == "answered" and all(
        small < large for small, large in zip(seen[:3], seen[3:], strict=True)
    )


@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("after", range(0, 24, 5))
def test_the_journal_keeps_the_same_request_to_two_roles_apart(after: int, tmp_path: Path) -> None:
    def session(folder: Path, end: int) -> tuple[Named, Named]:
        a, b = Named("a"), Named("b")

        def watch(_: int) -> None:
            if a.given + b.given == end:
                raise LLMUnavailableError("gone")

        a.watch = b.watch = watch
        with contextlib.suppress(LLMUnavailableError):
            go(folder, of_each_role, {"default": a, "pick": b}, ask_about(6))
        return a, b

    session(tmp_path / "whole", -1)
    killed = session(tmp_path / "killed", after)
    last = session(tmp_path / "killed", -1)
    assert answers(tmp_path / "killed") == answers(tmp_path / "whole")
    assert traces(tmp_path / "killed") == traces(tmp_path / "whole")
    for before, now, calls in zip(killed, last, (18, 6), strict=True):
        assert now.given <= calls and before.given + now.given >= calls
    assert b'"a a b a"' in answers(tmp_path / "whole")
    assert {(stage.name, stage.role) for stage in read_status(tmp_path / "whole").stages} == {
        *((role, role) for role in ROLES),
        ("journal", ""),
    }


class Out(Named):
    """Answers nobody from its third call on, for so many seconds."""

    def __init__(self, name: str, seconds: float) -> None:
        super().__init__(name)
        self.seconds, self.ends, self.calls = seconds, 0.0, 0

    async def complete(self, request: Request) -> Completion:
        now = asyncio.get_running_loop().time()
        self.calls += 1
        if self.calls > 2 and not self.ends:
            self.ends = now + self.seconds
        if now < self.ends:
            await asyncio.sleep(0.1)
            raise OutageError(f"{self.name} is out")
        return await super().complete(request)


@pytest.mark.guarantee("G7")
def test_an_outage_of_one_model_costs_no_answer_and_is_told_by_its_roles() -> None:
    heard: list[Waiting | None] = []
    llms: dict[Role, LLM] = {"default": Named("a"), "pick": Out("b", 60.0), "answer": Out("c", 90.0)}
    found = answered(llms, 9, budget=Budget(seconds=40.0), outage_seconds=600.0, on_outage=heard.append)
    assert {(it.state, it.answer) for it in found} == {("answered", "a a b c")}
    assert {said and (said.llm, said.reason) for said in heard} == {
        ("the LLM for pick", "b is out"),
        ("the LLM for answer", "c is out"),
        None,
    }
    assert heard[-1] is None and None not in heard[:-1]  # one is waited for as long as another is


def test_the_model_that_is_gone_is_named() -> None:
    with pytest.raises(LLMUnavailableError, match="the LLM for pick: b is out; pyfast waited for 0:02:00"):
        answered({"default": Named("a"), "pick": Out("b", 1e9)}, outage_seconds=120.0)


def test_two_outages_at_a_time_give_a_question_no_more_seconds_than_they_lasted() -> None:
    async def slow(question: Question, ctx: Context) -> Answer:
        await of_each_role(question, ctx)
        await asyncio.sleep(39.0)
        return Answer("")

    llms: dict[Role, LLM] = {"default": Named("a"), "pick": Out("b", 100.0), "answer": Out("c", 100.0)}
    (_, _, late) = answered(llms, 3, ask=slow, budget=Budget(seconds=30.0), outage_seconds=600.0, concurrency=3)
    assert late.reason == "not finished within the question's limit of 30 s"
