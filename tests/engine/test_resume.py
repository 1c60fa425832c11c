"""A run that is stopped anywhere and resumed writes what it would have written, and asks nothing twice."""

import asyncio
import contextlib
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from runs import DIRECT, WORD, Watched, answers, ask_about, direct, go, moody, records, winding

from pyfast.engine import Answer, Ask, Budget, Context, Question
from pyfast.engine.journal.journal import Journal
from pyfast.engine.journal.journal_reader import ended_questions, used_by
from pyfast.errors import AnswerError, CallError, LLMUnavailableError, RunError
from pyfast.llm import Completion, Request
from pyfast.retrieval import Index
from pyfast.systems import load_system

QUESTIONS = 9
# Nothing here depends on the system: two that differ will do.
SYSTEMS = [
    "winding",
    "n2n",
    *(pytest.param(name, marks=pytest.mark.slow(suite="crashes")) for name in ("hseq", "rag")),
]


@pytest.fixture(params=SYSTEMS)
def system(request: pytest.FixtureRequest) -> tuple[Ask, Callable[[Request], Any] | None]:
    """A system, and what its LLM says."""
    if request.param == "winding":
        return winding, moody
    chosen = load_system(request.param)
    return chosen.ask(chosen.configure({})), None


def kept(folder: Path) -> int:
    with contextlib.closing(Journal(folder / "journal.sqlite")) as journal:
        return sum(len(journal.past(number)[0]) for number in range(QUESTIONS))


@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.slow(suite="crashes"))])
def test_from_the_folder_as_it_is_at_any_moment(small: Index, tmp_path: Path, system: Any, step: int) -> None:
    """What a killed process leaves is what its files hold at that moment: copies of them stand for the kills."""
    ask, reply = system
    questions = ask_about(QUESTIONS)

    def copy(given: int) -> None:
        if not given % step:
            shutil.copytree(tmp_path / "run", tmp_path / f"killed-{given}")

    whole = Watched(reply, copy)
    go(tmp_path / "run", ask, whole, questions, small, concurrency=4)
    assert len(records(tmp_path / "run")) == QUESTIONS and whole.given >= QUESTIONS
    shutil.copytree(tmp_path / "run", tmp_path / f"killed-{whole.given}", dirs_exist_ok=True)
    for given in sorted({*range(0, whole.given, step), whole.given}):
        folder = tmp_path / f"killed-{given}"
        before = kept(folder)
        assert given - 4 * 3 <= before <= given  # but for those in flight
        resumed = Watched(reply)
        summary = go(folder, ask, resumed, questions, small, concurrency=3)
        assert answers(folder) == answers(tmp_path / "run")
        assert resumed.asked <= whole.asked and resumed.asked.total() == whole.asked.total() - before
        assert kept(folder) == whole.given
        assert summary.llm_calls == resumed.asked.total() + summary.replayed
        with contextlib.closing(Journal(folder / "journal.sqlite")) as journal:
            assert journal.counts() == Counter(record["state"] for record in records(folder))


@pytest.mark.guarantee("G1")
def test_when_it_is_cancelled_at_any_completion(small: Index, tmp_path: Path, system: Any) -> None:
    ask, reply = system
    questions = ask_about(QUESTIONS)
    whole = Watched(reply)
    go(tmp_path / "run", ask, whole, questions, small)
    for given in range(0, whole.given, 3):
        folder, asked = tmp_path / f"cancelled-{given}", Counter[str]()
        task: list[asyncio.Task[Any] | None] = []

        def cancel(now: int, given: int = given, task: list[asyncio.Task[Any] | None] = task) -> None:
            if now == given and task[0] is not None:
                task[0].cancel()

        async def noting(question: Question, ctx: Context, task: list[Any] = task) -> Answer:
            task.append(asyncio.current_task())
            return await ask(question, ctx)

        stopped = Watched(reply, cancel)
        with contextlib.suppress(asyncio.CancelledError):
            go(folder, noting, stopped, questions, small, concurrency=4)
        before, asked = kept(folder), asked + stopped.asked
        resumed = Watched(reply)
        go(folder, ask, resumed, questions, small, concurrency=4)
        assert answers(folder) == answers(tmp_path / "run")
        assert resumed.asked.total() == whole.asked.total() - before
        assert stopped.asked.total() - before <= 4 * 3  # in flight


@pytest.mark.guarantee("G1")
def test_equal_requests_of_one_question_keep_their_places(tmp_path: Path) -> None:
    """Three equal calls at once, not answered in the order in which they were made; the process ends after two."""

    async def system(question: Question, ctx: Context) -> Answer:
        said = await asyncio.gather(*(ctx.generate(WORD, question="one and the same") for _ in range(3)))
        return Answer(" ".join(word.answer for word in said))

    class Once(Watched):
        async def complete(self, request: Request) -> Completion:
            nth, self.given = self.given, self.given + 1
            for _ in range(30 - 10 * nth):  # the last one first
                await asyncio.sleep(0)
            if nth == 0:
                raise LLMUnavailableError("gone")
            return Completion(f'{{"answer": "{nth}"}}', "stop")

    with pytest.raises(LLMUnavailableError, match="gone"):
        go(tmp_path, system, Once(), ask_about(1))
    resumed = Watched(lambda request: {"answer": "new"})
    go(tmp_path, system, resumed, ask_about(1))
    assert records(tmp_path)[0]["answer"] == "new 1 2" and resumed.given == 1


@pytest.mark.parametrize("error", [CallError("too long"), AnswerError("it refuses")], ids=["call", "answer"])
def test_errors_take_the_same_branch_again(tmp_path: Path, error: CallError) -> None:
    async def system(question: Question, ctx: Context) -> Answer:
        try:
            await ctx.generate(WORD, question=question.text)
        except AnswerError as refused:
            return Answer(f"without it, for {refused}")
        except CallError as failed:
            return Answer(f"it failed: {failed}")
        finally:
            await ctx.generate(DIRECT, question="the end")
        raise AssertionError

    def reply(request: Request) -> Any:
        return {"answer": "x"} if "the end" in request.messages[-1].content else error

    whole = Watched(reply)
    go(tmp_path / "run", system, whole, ask_about(1))
    assert str(error) in records(tmp_path / "run")[0]["answer"]

    def dies(request: Request) -> Any:
        return LLMUnavailableError("gone") if "the end" in request.messages[-1].content else error

    with pytest.raises(LLMUnavailableError):
        go(tmp_path / "died", system, Watched(dies), ask_about(1))
    go(tmp_path / "died", system, resumed := Watched(reply), ask_about(1))
    assert answers(tmp_path / "died") == answers(tmp_path / "run") and resumed.given == 1


@pytest.mark.parametrize("missing", range(3))
def test_a_budget_is_used_up_at_the_same_place_again(tmp_path: Path, missing: int) -> None:
    """Calls that were made at once were within the budget, all of them; they are when they are replayed."""

    async def system(question: Question, ctx: Context) -> Answer:
        said = await asyncio.gather(*(ctx.generate(WORD, question=str(i)) for i in range(3)))
        return Answer(f"{len(said)} words, {ctx.ledger.tokens} tokens")

    async def gone(request: Request) -> Any:
        if request.messages[-1].content.endswith(str(missing)):
            await asyncio.sleep(0.2)
            return LLMUnavailableError("gone")
        return {"answer": "x"}

    budget = Budget(tokens=150)
    with pytest.raises(LLMUnavailableError):
        go(tmp_path, system, Watched(gone), ask_about(1), budget=budget)
    go(tmp_path, system, resumed := Watched(lambda request: {"answer": "x"}), ask_about(1), budget=budget)
    assert resumed.given == 1
    assert records(tmp_path)[0]["answer"] == "3 words, 330 tokens", records(tmp_path)


def test_the_seconds_of_a_question_are_those_of_all_sessions(tmp_path: Path) -> None:
    """Two calls at once and one after them, each of 0.3 s; the process ends before each of the last two calls."""

    async def system(question: Question, ctx: Context) -> Answer:
        await asyncio.gather(*(ctx.generate(WORD, question=str(i)) for i in range(2)))
        for i in range(2, 4):
            await ctx.generate(WORD, question=str(i))
        return Answer("the end")

    def until(last: int) -> Watched:
        async def reply(request: Request) -> Any:
            if int(request.messages[-1].content[-1]) > last:
                return LLMUnavailableError("gone")
            await asyncio.sleep(0.3)
            return {"answer": "x"}

        return Watched(reply)

    for last in (1, 2):
        with pytest.raises(LLMUnavailableError):
            go(tmp_path, system, until(last), ask_about(1))
    assert go(tmp_path, system, until(3), ask_about(1)).replayed == 3
    (used,) = used_by(tmp_path).values()
    assert used.seconds is not None and 0.9 <= used.seconds < 1.2
    ((_, ledger, _),) = ended_questions(tmp_path / "journal.sqlite", 0, 1)
    assert ledger["started"] + ledger["seconds"] <= time.time()


def test_failures_can_be_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "pyfast")
    questions = ask_about(QUESTIONS)
    bad = {"question 2", "question 5"}

    def reply(request: Request) -> Any:
        about = request.messages[-1].content.removeprefix("Question: ")
        return CallError("busy") if about in bad else {"answer": about}

    go(tmp_path, direct, Watched(reply), questions)
    assert [record["id"] for record in records(tmp_path) if record["state"] == "failed"] == ["q2", "q5"]
    before = answers(tmp_path)
    go(tmp_path, direct, nothing := Watched(reply), questions)
    assert nothing.given == 0 and answers(tmp_path) == before
    bad.remove("question 2")
    (tmp_path / "answers.jsonl").write_bytes(before + b'{"id": "torn')
    go(tmp_path, direct, again := Watched(reply), questions, retry_failed=True)
    assert again.given == 2  # nothing but the two
    assert "7 of 9 questions are finished; continuing; 5 of them are written again from the journal" in caplog.text
    assert [record["id"] for record in records(tmp_path)] == [question.id for question in questions]
    assert [record["id"] for record in records(tmp_path) if record["state"] == "failed"] == ["q5"]
    with contextlib.closing(Journal(tmp_path / "journal.sqlite")) as journal:
        assert journal.counts() == {"answered": 8, "failed": 1}


def test_a_failure_that_was_not_written_yet_counts_once(tmp_path: Path) -> None:
    """q1 to q5 fail while q0 takes its time: they are in the journal, and not in the answers, when all ends."""

    def reply(request: Request) -> Any:
        async def slow() -> Any:
            await asyncio.sleep(0.2)
            return LLMUnavailableError("gone")

        return slow() if "question 0" in request.messages[-1].content else CallError("busy")

    def better(request: Request) -> Any:
        return {"answer": "x"} if "question 0" in request.messages[-1].content else CallError("busy")

    with pytest.raises(LLMUnavailableError):
        go(tmp_path, direct, Watched(reply), ask_about(6), failures=5)
    (tmp_path / "answers.jsonl").write_bytes(b"")  # as if it was killed
    go(tmp_path, direct, Watched(better), ask_about(6), failures=5)
    assert [record["state"] for record in records(tmp_path)] == ["answered"] + 5 * ["failed"]
    go(tmp_path, direct, Watched(better), ask_about(6), failures=5)


@pytest.mark.guarantee("G3")
def test_journal_and_answers_agree_on_a_question_that_ends_otherwise(tmp_path: Path) -> None:
    """q1 fails for a reason of the moment, and the process ends before its answer is written. Then it succeeds."""
    moment = [True]

    async def system(question: Question, ctx: Context) -> Answer:
        answer = await direct(question, ctx)
        if question.id == "q1" and moment:
            raise OSError("too many open files")
        return answer

    def reply(request: Request) -> Any:
        async def slow() -> Any:
            await asyncio.sleep(0.2)
            return LLMUnavailableError("gone")

        return slow() if "question 0" in request.messages[-1].content and moment else {"answer": "x"}

    with pytest.raises(LLMUnavailableError):
        go(tmp_path, system, Watched(reply), ask_about(2))
    moment.clear()
    go(tmp_path, system, Watched(reply), ask_about(2))
    with contextlib.closing(Journal(tmp_path / "journal.sqlite")) as journal:
        assert journal.counts() == Counter(record["state"] for record in records(tmp_path)) == {"answered": 2}


def test_what_stops_a_run_can_be_removed(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="more than 3 questions failed; the first reason was: busy"):
        go(tmp_path, direct, Watched(lambda request: CallError("busy")), ask_about(20), failures=3, concurrency=2)
    go(tmp_path, direct, Watched(lambda request: {"answer": "x"}), ask_about(20), failures=20)
    states = [record["state"] for record in records(tmp_path)]
    assert len(states) == 20 and 4 <= states.count("failed") <= 5
