"""`pyfast.Engine`: callers that share batches, leave early, stream, and disturb nobody."""

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from hostile_server import counts, hostile
from runs import Watched

import pyfast
from pyfast.errors import InputError, LLMUnavailableError
from pyfast.llm import Completion, Request
from pyfast.reports.text_report import show

QUESTIONS = [f"Which moon has the number {number}?" for number in range(60)]


class Gate:
    """Answers when it is opened; counts what is in progress and what was cancelled."""

    fingerprint = "gate-1"
    slots = 1000

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.working = self.cancelled = self.most = 0

    async def complete(self, request: Request) -> Completion:
        self.working += 1
        self.most = max(self.most, self.working)
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.working -= 1
        return Completion('{"answer": "Titan"}', "stop")


async def until(is_so: Any) -> None:
    async with asyncio.timeout(20):
        while not is_so():
            await asyncio.sleep(0.005)


async def test_all_callers_share_the_batches(small: pyfast.Index) -> None:
    searched: list[int] = []

    class Counting(pyfast.Index):
        def search(self, queries: Any, k: int) -> Any:
            searched.append(len(queries))
            return super().search(queries, k)

    async with pyfast.Engine(Counting(small.folder), "instant", concurrency=200) as engine:
        records = await asyncio.gather(
            *(
                engine.answer(question, system=system)
                for question in QUESTIONS
                for system in ("rag", "n2n", "hseq")
            )
        )
    assert {record.state for record in records} == {"answered"}
    assert max(searched) > 10  # of other callers too; and a subclass's search is asked


async def test_the_records_are_those_of_answer(small: pyfast.Index) -> None:
    asked = [pyfast.Question(str(number), text) for number, text in enumerate(QUESTIONS, start=1)]
    whole = pyfast.answer(asked, index=small, llm="instant", system="n2n")
    async with pyfast.Engine(small, "instant", concurrency=7) as engine:
        found = [record async for record in engine.answer_many(QUESTIONS, system="n2n")]
        assert [record.line() for record in found] == [record.line() for record in whole.records]
        (alone,) = [record async for record in engine.answer_many(iter(QUESTIONS[:1]), system="n2n")]
        assert alone == found[0]


async def test_one_that_is_cancelled_leaves_the_others_alone(small: pyfast.Index) -> None:
    llm = Gate()
    async with pyfast.Engine(small, llm) as engine:
        tasks = [asyncio.ensure_future(engine.answer(question, system="rag")) for question in QUESTIONS[:20]]
        await until(lambda: llm.working == 20)
        for task in tasks[::2]:
            task.cancel()
        await until(lambda: llm.cancelled == 10)
        llm.open.set()
        done = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(it, asyncio.CancelledError) for it in done] == [True, False] * 10
    assert all(it.answer == "Titan" for it in done[1::2] if isinstance(it, pyfast.Record))


async def test_no_more_are_in_work_than_wanted(small: pyfast.Index) -> None:
    llm = Gate()
    async with pyfast.Engine(small, llm, concurrency=5) as engine:
        tasks = [asyncio.ensure_future(engine.answer(question, system="rag")) for question in QUESTIONS]
        await until(lambda: llm.working == 5)
        llm.open.set()
        await asyncio.gather(*tasks)
    assert llm.most == 5


async def test_an_endless_stream_a_slow_one_and_one_that_waits_for_its_answers(small: pyfast.Index) -> None:
    taken = 0
    heard = asyncio.Event()

    async def endless() -> AsyncIterator[str]:
        nonlocal taken
        while True:
            taken += 1
            yield f"question {taken}"

    async def waiting() -> AsyncIterator[str]:
        yield "one"
        await heard.wait()
        yield "two"

    async with pyfast.Engine(small, "instant", concurrency=4) as engine:
        async with aclosing(engine.answer_many(endless(), system="rag")) as records:
            async for record in records:
                if record.id == "30":
                    break
        assert 30 <= taken <= 30 + 10
        ids = []
        async with asyncio.timeout(20):
            async for record in engine.answer_many(waiting(), system="rag"):
                ids.append(record.id)
                heard.set()
        assert ids == ["1", "2"]


async def test_what_is_before_a_bad_question_is_answered(small: pyfast.Index) -> None:
    async with pyfast.Engine(small, "instant", concurrency=4) as engine:
        ids = []
        with pytest.raises(InputError, match="question 21: expected a `question`"):
            async for record in engine.answer_many([*QUESTIONS[:20], " ", "never"], system="rag"):
                ids.append(record.id)
        assert ids == [str(number) for number in range(1, 21)]


async def test_leaving_early_cancels_what_is_in_work(small: pyfast.Index) -> None:
    llm = Gate()
    async with pyfast.Engine(small, llm, concurrency=8) as engine:
        records = engine.answer_many(QUESTIONS, system="rag")
        first = asyncio.ensure_future(anext(records))
        await until(lambda: llm.working == 8)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await until(lambda: llm.working == 0)
        llm.open.set()
        assert (await engine.answer("Who?", system="rag")).answer == "Titan"


async def test_leaving_the_engine(small: pyfast.Index) -> None:
    """Those in progress are finished; after an error they are cancelled; nobody waits for ever."""
    llm = Gate()
    async with pyfast.Engine(small, llm) as engine:
        tasks = [asyncio.ensure_future(engine.answer(question, system="n2n")) for question in QUESTIONS[:9]]
        await until(lambda: llm.working)
        llm.open.set()
    assert {(await task).state for task in tasks} <= {"answered", "failed"}
    with pytest.raises(InputError, match="has been closed"):
        await engine.answer("Who?", system="rag")
    again = Gate()
    with pytest.raises(ZeroDivisionError):
        async with pyfast.Engine(small, again) as engine:
            tasks = [asyncio.ensure_future(engine.answer(question, system="rag")) for question in QUESTIONS[:9]]
            await until(lambda: again.working == 9)
            raise ZeroDivisionError
    done = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 20)
    assert all(isinstance(it, asyncio.CancelledError) for it in done)


def test_it_can_be_entered_again_in_another_loop(small: pyfast.Index) -> None:
    engine = pyfast.Engine(small, "instant", concurrency=2)

    async def once() -> set[str]:
        async with engine:
            with pytest.raises(InputError, match="already been entered"):
                await engine.__aenter__()
            return {record.state async for record in engine.answer_many(QUESTIONS, system="rag")}

    assert asyncio.run(once()) == asyncio.run(once()) == {"answered"}


async def test_conversations_and_history(small: pyfast.Index) -> None:
    """A turn sees those before it: given as turns, as `Question`s, or as a history."""
    talk = {"id": "c", "turns": [{"id": "a", "question": "Who is Huygens?"}, {"id": "b", "question": "When?"}]}
    turns = [pyfast.Question("a", "Who is Huygens?", "c"), pyfast.Question("b", "When?", "c")]
    settings = {"graph": False, "memory": "off", "k": 3}
    async with pyfast.Engine(small, "instant") as engine:
        one, other = [
            [record async for record in engine.answer_many(given, system="graph_convqa", settings=settings)]
            for given in ([talk], turns)
        ]
        assert [record.line() for record in one] == [record.line() for record in other]
        said = one[0].answer or ""
        history = [("Who is Huygens?", said)]
        third = await engine.answer("When?", system="graph_convqa", settings=settings, history=history)
        assert third.trace["query"] == one[1].trace["query"] == f"Who is Huygens? {said} When?"
        with pytest.raises(InputError, match="pass it to answer_many"):
            await engine.answer(talk, system="rag")


async def test_hits(small: pyfast.Index) -> None:
    async with pyfast.Engine(small, "instant") as engine:
        hits = await engine.retrieve("moon of Saturn", k=3)
        assert len(hits) == 3 and "Saturn" in hits[0].snippet and hits[0].score is not None
        assert await engine.retrieve("zzzz", k=3) == []
        with pytest.raises(InputError, match="k: expected"):
            await engine.retrieve("moon", k=0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"system": "nonsense"}, "unknown system 'nonsense'; expected a System, or one of .*, rag, [^:]*$"),
        ({"system": "os:system"}, "expected a System"),
        ({"system": "rag", "settings": {"k": 0}}, "setting k"),
        ({"system": "rag", "question": ""}, "expected a `question`"),
        ({"system": "rag", "history": ["Who is Huygens?"]}, "history, item 1: expected a pair of strings"),
        ({"system": "rag", "history": [("Who?", None)]}, "history, item 1: expected a pair of strings"),
    ],
)
async def test_what_does_not_fit(small: pyfast.Index, given: dict[str, Any], said: str) -> None:
    async with pyfast.Engine(small, "instant") as engine:
        for _ in range(2):
            with pytest.raises(InputError, match=said):
                await engine.answer(**{"question": "Who?", **given})
        assert (await engine.answer("Who?", system="rag")).state == "answered"
        with pytest.raises(InputError, match="expected a question as a string"):
            await anext(engine.answer_many(b"Who?", system="rag"))  # type: ignore[arg-type]


def test_options_are_options() -> None:
    given: Any = {"outage": 1}
    with pytest.raises(InputError, match=r"options: expected pyfast.RunOptions\(...\), got dict"):
        pyfast.answer(["Who?"], llm="instant", system="direct", options=given)
    with pytest.raises(InputError, match=r"options: expected pyfast.ServerOptions\(...\), got dict"):
        pyfast.serve(llm="instant", options=given)


@pytest.mark.parametrize("how", ["answer", "answer_many"])
async def test_a_question_with_a_past_is_rewritten(small: pyfast.Index, how: str) -> None:
    """By default, for a system that answers single questions. Only such a question needs an LLM that rewrites."""
    turns = [pyfast.Question("a", "Who is Huygens?", "c"), pyfast.Question("b", "When?", "c")]

    async def ask(engine: pyfast.Engine) -> pyfast.Record:
        if how == "answer":
            return await engine.answer("When?", system="rag", history=[("Who is Huygens?", "A man.")])
        return [record async for record in engine.answer_many(turns, system="rag")][1]

    async with pyfast.Engine(small, "instant") as engine:
        assert "asked" in (await ask(engine)).trace
    async with pyfast.Engine(small, {"answer": "instant"}) as engine:
        assert (await engine.answer("When?", system="rag")).state == "answered"
        with pytest.raises(InputError, match="no LLM for its roles plan"):
            await ask(engine)


def test_an_error_of_the_caller_in_a_loop_over_answers_is_the_only_one(
    small: pyfast.Index, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with pyfast.Engine(small, "instant") as engine:
            many = engine.answer_many(["a"], system="rag")
            async for _ in many:
                raise KeyError("my own")

    with pytest.raises(KeyError):
        asyncio.run(work())
    assert not caplog.records


async def test_a_folder_that_is_moved_away_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "IDX"
    pyfast.build_index([{"id": "titan", "text": "Titan is a moon of Saturn."}], folder)
    async with pyfast.Engine(folder, "instant", follow=True) as engine:
        assert await engine.retrieve("moon")
        folder.rename(tmp_path / "away")
        for _ in range(2):
            assert await engine.retrieve("moon")
        (tmp_path / "away").rename(folder)
        assert await engine.retrieve("moon")
    told = [record.getMessage() for record in caplog.records if "no longer exists" in record.getMessage()]
    assert told == [f"{folder} no longer exists; the engine stays at commit 1"]


async def test_a_model_that_is_gone_and_comes_back(small: pyfast.Index) -> None:
    gone = True

    def reply(request: Request) -> Any:
        return LLMUnavailableError("gone") if gone else {"answer": "Titan"}

    async with pyfast.Engine(small, Watched(reply)) as engine:
        with pytest.raises(LLMUnavailableError):
            await engine.answer("Who?", system="rag")
        gone = False
        assert (await engine.answer("Who?", system="rag")).answer == "Titan"


async def test_a_run_in_a_folder_beside_other_callers(small: pyfast.Index, tmp_path: Path) -> None:
    whole = pyfast.answer(QUESTIONS, index=small, llm="instant", system="n2n", run=tmp_path / "whole")
    stop = asyncio.Event()
    llm = Watched(watch=lambda given: stop.set() if given == 30 else None)
    async with pyfast.Engine(small, llm, concurrency=8) as engine:
        first = await engine.answer_run(QUESTIONS, tmp_path / "run", system="n2n", stop=stop)
        assert 0 < first.status.ended < len(QUESTIONS)
        assert (await engine.answer(QUESTIONS[0], system="n2n")).answer == whole.records[0].answer
        run = await engine.answer_run(QUESTIONS, tmp_path / "run", system="n2n")
        assert run.session is not None and run.session.replayed == 0
    assert (tmp_path / "run" / "answers.jsonl").read_bytes() == (tmp_path / "whole" / "answers.jsonl").read_bytes()
    with pytest.raises(InputError, match="has been closed"):
        await engine.answer_run(QUESTIONS, tmp_path / "run")


async def test_a_journal_keeps_what_a_run_keeps(small: pyfast.Index, tmp_path: Path) -> None:
    folder = tmp_path / "J"
    async with pyfast.Engine(small, "instant", journal=folder) as engine:
        records = [record async for record in engine.answer_many(QUESTIONS[:5], system="rag")]
        assert pyfast.Run(folder).status.ended <= 5 and pyfast.verify(folder).passed
    kept = [json.loads(line) for line in (folder / "answers.jsonl").read_text().splitlines()]
    assert sorted(line["id"] for line in kept) == sorted(record.id for record in records)
    with contextlib.closing(sqlite3.connect(folder / "journal.sqlite")) as journal:
        assert journal.execute("SELECT count(*) FROM completions").fetchone() == (5,)
    with pytest.raises(InputError, match="use a new folder"):
        async with pyfast.Engine(small, "instant", journal=folder):
            pass


async def test_a_journal_is_read_as_a_run(small: pyfast.Index, tmp_path: Path) -> None:
    """Also if questions end in another order than they began, and one was cancelled."""
    folder = tmp_path / "J"
    llm = Watched(watch=lambda given: left.cancel() if given == 1 else None)
    async with pyfast.Engine(small, llm, journal=folder) as engine:
        left = asyncio.ensure_future(engine.answer({"id": "left", "question": "Who left?"}, system="n2n"))
        with pytest.raises(asyncio.CancelledError):
            await left
        asked = [({"id": f"q{n}", "question": QUESTIONS[n]}, ("n2n", "rag")[n % 2]) for n in range(10)]
        await asyncio.gather(*(engine.answer(question, system=system) for question, system in asked))
        assert [(await engine.answer(text, system="rag")).id for text in QUESTIONS[:2]] == ["12", "13"]
    run = pyfast.Run(folder)
    assert {record.id for record in run.records} == {"12", "13", *(f"q{n}" for n in range(10))}
    assert [record.id for record in run.records][:10] != [f"q{n}" for n in range(10)]
    assert run.status.states == {"answered": 12} and run.status.questions == 12 and not run.status.altered
    assert pyfast.verify(folder).passed
    assert QUESTIONS[3] in show(folder, "q3") and len(run.prompts("q3")) == 1
    table = run.to_arrow().to_pylist()
    assert {row["id"]: row["question"] for row in table}["q7"] == QUESTIONS[7]
    with pytest.raises(InputError, match="journal of an engine, which cannot be resumed"):
        pyfast.answer(QUESTIONS[:3], index=small, llm="instant", system="rag", run=folder)
    again = pyfast.answer(
        [{"id": "x", "question": QUESTIONS[3]}],
        index=small,
        llm="instant",
        system="rag",
        run=tmp_path / "R",
        options=pyfast.RunOptions(reuse=[folder]),
    )
    assert again.session is not None and again.session.reused == 1


async def test_an_engine_with_a_journal_that_is_left_early_does_not_call_the_llm_down(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With a journal, the calls of cancelled questions continue, until the engine ends."""
    with hostile("--weights", "good=1", "--delay-ms", "60000") as llm, pytest.raises(ZeroDivisionError):
        async with pyfast.Engine(None, f"openai:m@{llm}", journal=tmp_path / "J") as engine:
            asked = [asyncio.ensure_future(engine.answer(text, system="direct")) for text in QUESTIONS[:3]]
            while counts(llm)["requests"] < 3:
                await asyncio.sleep(0.01)
            raise ZeroDivisionError
    ended = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(one, asyncio.CancelledError) for one in ended)
    assert not [one.getMessage() for one in caplog.records if one.levelname != "INFO"]


@pytest.mark.parametrize("name", ["run_tokens", "run_seconds"])
def test_limits_of_runs_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"budget {name}: applies only to runs"):
        pyfast.Engine(llm="instant", budget={name: 300})
    with pytest.raises(InputError, match=f"budget {name}: applies only to runs"):
        pyfast.serve(llm="instant", systems=["direct"], budget={name: 300})


def test_another_event_loop(small: pyfast.Index) -> None:
    engine, loop = pyfast.Engine(small, "instant"), asyncio.new_event_loop()
    with contextlib.closing(loop):
        loop.run_until_complete(engine.__aenter__())
        with pytest.raises(InputError, match="in the event loop in which its `async with` block started"):
            asyncio.run(engine.answer("Who?", system="rag"))
        loop.run_until_complete(engine.__aexit__(None))
