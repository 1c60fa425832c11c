"""Budgets: a question that exceeds its own fails alone; a run that exceeds its own stops and can be resumed."""

import asyncio
import math
import re
from pathlib import Path
from typing import Any

import processes
import pytest
from runs import DIRECT, Watched, answers, ask_about, direct, go, records

from pyfast.api.jobs import allowed_failures
from pyfast.engine import Answer, Budget, Context, Question
from pyfast.errors import AnswerError, BudgetError, CallError, InputError, RunError
from pyfast.llm import Completion, Request
from pyfast.retrieval import Index

YES = {"answer": "yes"}


def about(request: Request) -> int:
    """The number of the question that a request is for."""
    return int(request.messages[1].content.split()[-1])


async def stubborn(question: Question, ctx: Context) -> Answer:
    """Asks on and on, as many times as its number, with any reply, and takes no CallError for an end."""
    for _ in range(int(question.id[1:])):
        try:
            await ctx.generate(DIRECT, question=question.text)
        except AnswerError:
            continue
        except CallError:
            continue
    return Answer("done")


LIMITS = [
    (Budget(calls=3), "direct: the question has reached its limit of 3 LLM calls", 3),
    (Budget(tokens=330), "direct: the question has reached its limit of 330 tokens (330 used)", 3),
    (Budget(tokens=1), "direct: the question has reached its limit of 1 token (110 used)", 1),
    (Budget(tokens=331), "direct: the question has reached its limit of 331 tokens (440 used)", 4),
    (Budget(steps=3), "direct: the question has reached its limit of 3 steps", 3),
]


@pytest.mark.parametrize("said", [YES, CallError("no"), "broken"], ids=["answers", "errors", "malformed answers"])
@pytest.mark.parametrize(("budget", "reason", "calls"), LIMITS, ids=str)
def test_a_question_beyond_its_budget_fails_alone(
    tmp_path: Path, budget: Budget, reason: str, calls: int, said: Any
) -> None:
    if budget.tokens is not None and isinstance(said, CallError):
        pytest.skip("a failed call has no tokens")
    llm = Watched(lambda request: said)
    go(tmp_path, stubborn, llm, ask_about(7), budget=budget.model_copy(update={"attempts": 1}))
    for number, record in enumerate(records(tmp_path)):
        assert record["state"] == ("answered" if number <= calls else "failed")
        assert record.get("reason") == (None if number <= calls else reason)
        assert record["usage"]["llm_calls"] == min(number, calls)
    assert llm.given == sum(min(number, calls) for number in range(7))


def test_searches_are_steps(small: Index, tmp_path: Path) -> None:
    async def system(question: Question, ctx: Context) -> Answer:
        await ctx.retrieve("Titan", 3)
        await ctx.retrieve_all(["Titan", "Saturn"], 3)
        return await direct(question, ctx)

    for steps, state in ((3, "answered"), (2, "failed")):
        budget = Budget(steps=steps)
        go(tmp_path / str(steps), system, Watched(lambda request: YES), ask_about(2), small, budget)
        assert {record["state"] for record in records(tmp_path / str(steps))} == {state}


def test_no_system_can_catch_a_spent_budget() -> None:
    assert not issubclass(BudgetError, CallError) and not issubclass(BudgetError, RunError)


class Silent(Watched):
    """Never answers what is asked about the questions of odd numbers; `left` are those it was let off."""

    slots = 2

    def __init__(self) -> None:
        super().__init__(lambda request: YES)
        self.slots = 2
        self.left: list[int] = []

    async def complete(self, request: Request) -> Completion:
        if about(request) % 2:
            try:
                await asyncio.sleep(3600)
            finally:
                self.left.append(about(request))
        return await super().complete(request)


LATE = [
    (Budget(seconds=0.3), "not finished within the question's limit of 0.3 s"),
    (Budget(call_seconds=0.3), "the LLM did not answer within 0.3 s"),
]


@pytest.mark.guarantee("G6")
@pytest.mark.parametrize(("budget", "reason"), LATE, ids=str)
def test_a_late_answer_fails_its_question_and_frees_its_place(tmp_path: Path, budget: Budget, reason: str) -> None:
    """Four calls go at a time; there are twenty that never end."""
    llm = Silent()
    go(tmp_path, direct, llm, ask_about(40), budget=budget, concurrency=4)
    assert sorted(llm.left) == list(range(1, 40, 2))
    for number, record in enumerate(records(tmp_path)):
        assert record["state"] == ("failed" if number % 2 else "answered")
        assert record.get("reason") == (reason if number % 2 else None)


def test_a_call_waits_for_its_turn_without_being_late(tmp_path: Path) -> None:
    async def slow(request: Request) -> Any:
        await asyncio.sleep(0.1)
        return YES

    llm = Watched(slow)
    llm.slots = 1  # so that two go at a time: the last of thirty waits for 1.5 s
    go(tmp_path, direct, llm, ask_about(30), budget=Budget(call_seconds=1.2))
    assert [record["state"] for record in records(tmp_path)] == ["answered"] * 30


def test_a_runs_tokens_are_those_of_all_sessions(tmp_path: Path) -> None:
    """A call is 110 tokens; one question is in progress at a time."""
    llm = Watched(lambda request: YES)
    for tokens, answered in ((330, 3), (330, 3), (331, 4), (1000, 10)):
        with pytest.raises(RunError, match=rf"limit of {tokens} tokens \({answered * 110} used; "):
            go(tmp_path, direct, llm, ask_about(12), budget=Budget(run_tokens=tokens), concurrency=1)
        assert len(records(tmp_path)) == answered
    go(tmp_path, direct, llm, ask_about(12), budget=Budget(run_tokens=1101), concurrency=5)  # None is left.
    assert len(records(tmp_path)) == llm.given == 12


def test_the_command_names_what_resumes_a_run_without_tokens(tmp_path: Path) -> None:
    asked = tmp_path / "q.jsonl"
    asked.write_text("".join(f'{{"id": "{k}", "question": "Who is {k}?"}}\n' for k in range(200)))
    given = ("answer", asked, "--system", "direct", "--llm", "instant", "--run", tmp_path / "run")
    done = processes.pyfast(*given, "--budget", "run_tokens=100", "--concurrency", "2")
    assert done.returncode == 1 and re.search(
        r"limit of 100 tokens \(\d+ used; questions in progress have finished\);"
        r" the same command with a larger run_tokens resumes \S+run$",
        done.stderr.strip(),
    )
    assert processes.pyfast(*given, "--budget", "run_tokens=1000000").returncode == 0


@pytest.mark.guarantee("G6")
def test_a_runs_seconds_are_those_of_a_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyfast.engine.run._LAST_CALLS_S", 0.2)  # Calls in flight have a minute to end.
    llm = Silent()
    with pytest.raises(RunError, match=r"the run has reached its limit of 0\.5 s"):
        go(tmp_path, direct, llm, ask_about(4), budget=Budget(run_seconds=0.5))
    assert sorted(llm.left) == [1, 3]  # cancelled
    llm = Watched(lambda request: YES)
    go(tmp_path, direct, llm, ask_about(4), budget=Budget(run_seconds=60))
    assert [record["state"] for record in records(tmp_path)] == ["answered"] * 4
    assert llm.given == 2  # the others were answered before
    go(tmp_path / "whole", direct, Watched(lambda request: YES), ask_about(4))
    assert answers(tmp_path / "whole") == answers(tmp_path)


@pytest.mark.parametrize(("text", "total", "most"), [("5", 9, 5), ("0", 9, 0), ("5%", 200, 10), ("5%", 19, 0)])
def test_how_many_may_fail(tmp_path: Path, text: str, total: int, most: int) -> None:
    assert allowed_failures(text, total) == most
    questions = ask_about(total)
    bad = set(range(0, total, max(1, math.floor(total / (most + 1)))))

    def reply(request: Request) -> Any:
        return CallError("busy") if about(request) in bad else YES

    while len(bad) > most + 1:
        bad.pop()
    with pytest.raises(RunError, match=rf"more than {most} questions failed; the first reason was: busy"):
        go(tmp_path, direct, Watched(reply), questions, failures=most, concurrency=3)
    assert sum(record["state"] == "failed" for record in records(tmp_path)) == most + 1
    bad.pop()
    go(tmp_path / "fewer", direct, Watched(reply), questions, failures=most)
    assert len(records(tmp_path / "fewer")) == total


@pytest.mark.parametrize("text", ["", "%", "-1", "1.5", "101%", "x", "٣", "5%%", " 5"])
def test_what_is_no_number_of_failures(text: str) -> None:
    with pytest.raises(InputError, match="max_failures"):
        allowed_failures(text, 100)


@pytest.mark.parametrize("given", ["calls=0", "seconds=-1", "seconds=nan", "frob=1", "steps="])
def test_what_is_no_budget(given: str) -> None:
    name, _, value = given.partition("=")
    with pytest.raises(InputError, match=f"budget {name}: "):
        Budget.parse({name: value})
