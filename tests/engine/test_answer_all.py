"""A run gives each question exactly one record, in order, in bounded memory, independently of the others."""

import asyncio
import gc
import random
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import orjson
import pytest
from runs import answer_all

from pyfast.engine import Answer, Ask, Budget, Context, Question, Record, Summary
from pyfast.engine.record import cite, with_names
from pyfast.errors import CallError, InputError, LLMUnavailableError
from pyfast.llm import LLM, Completion, Request, open_llm
from pyfast.llm.instant import Instant
from pyfast.retrieval import Index, ScoredSegments, pool_ids, traced
from pyfast.systems import load_system
from pyfast.systems.prompts import DIRECT

INSTANT = open_llm("instant")


def ask(n: int) -> Iterator[Question]:
    return (Question(f"q{i}", f"question {i}") for i in range(n))


def run(
    questions: Iterator[Question],
    system: Ask,
    write: Callable[[Record], None],
    index: Index | None = None,
    llm: LLM = INSTANT,
    concurrency: int = 8,
) -> Summary:
    """A run that may not hang, nor leave errors that nobody sees behind."""
    unseen: list[dict[str, Any]] = []

    async def inside() -> Summary:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
        try:
            return await asyncio.wait_for(
                answer_all(questions, system, index, llm, write, concurrency), timeout=60
            )
        finally:
            await asyncio.sleep(0.05)
            gc.collect()

    try:
        return asyncio.run(inside())
    finally:
        gc.collect()
        assert unseen == []


async def mixed(question: Question, ctx: Context) -> Answer:
    """Every third abstains, every fifth fails, all take a while."""
    number = int(question.id[1:])
    await asyncio.sleep(random.Random(number).random() / 200)
    if number % 5 == 4:
        raise CallError(f"no luck with {number}") if number % 2 else KeyError(number)
    return Answer(None if number % 3 == 0 else f"answer {number}", trace={"number": number})


@pytest.mark.guarantee("G3")
@pytest.mark.parametrize("concurrency", [1, 8, 500])
def test_one_record_each_in_order_and_states_add_up(concurrency: int) -> None:
    records: list[Record] = []
    summary = run(ask(200), mixed, records.append, concurrency=concurrency)
    assert [record.id for record in records] == [f"q{i}" for i in range(200)]
    for i, record in enumerate(records):
        state = "failed" if i % 5 == 4 else "abstained" if i % 3 == 0 else "answered"
        assert record.state == state
        assert record.answer == (f"answer {i}" if state == "answered" else None)
    assert summary.states == {"failed": 40, "abstained": 54, "answered": 106}
    assert records[9].reason == "no luck with 9"
    assert records[4].reason == "KeyError: 4"


def test_no_questions() -> None:
    assert run(ask(0), mixed, print).states == {}


def test_any_iterator_of_questions_will_do() -> None:
    records: list[Record] = []
    run(iter([Question("b", "?"), Question("a", "?")]), direct, records.append)
    assert [record.id for record in records] == ["b", "a"]


async def direct(question: Question, ctx: Context) -> Answer:
    return Answer(question.text)


def test_a_slow_question_holds_back_admission_not_memory() -> None:
    admitted, records = 0, []
    enough = asyncio.Event()

    def questions() -> Iterator[Question]:
        nonlocal admitted
        for question in ask(10_000):
            admitted += 1
            yield question

    async def system(question: Question, ctx: Context) -> Answer:
        if question.id == "q0":
            await enough.wait()
        return Answer("done")

    async def patience() -> None:
        before = -1
        while before != admitted:  # until nothing moves any more
            before = admitted
            await asyncio.sleep(0.1)
        assert records == [] and 8 < admitted <= 4096
        enough.set()

    async def inside() -> None:
        watching = asyncio.create_task(patience())
        await asyncio.wait_for(answer_all(questions(), system, None, INSTANT, records.append, 8), 60)
        await watching

    asyncio.run(inside())
    assert len(records) == admitted == 10_000


@pytest.mark.guarantee("G4")
def test_a_unit_that_does_not_exist_fails_its_question_alone(small: Index) -> None:
    async def system(question: Question, ctx: Context) -> Answer:
        segment = 10**6 if question.id == "q3" else 0
        return Answer("x", ScoredSegments(np.array([segment]), np.array([1], np.float32)))

    records: list[Record] = []
    run(ask(8), system, records.append, small)
    assert [r.id for r in records if r.state == "failed"] == ["q3"]
    assert records[3].answer is None and "no segment 1000000" in str(records[3].reason)


@pytest.mark.guarantee("G4")
def test_a_trace_that_cannot_be_written_fails_its_question_alone() -> None:
    async def system(question: Question, ctx: Context) -> Answer:
        return Answer("x", trace={"set": {1}} if question.id == "q3" else {})

    records: list[Record] = []
    run(ask(8), system, records.append)
    assert [r.id for r in records if r.state == "failed"] == ["q3"]


def test_retrieval_without_an_index_stops_the_run() -> None:
    rag = load_system("rag")
    with pytest.raises(InputError, match="but the run has none"):
        run(ask(2), rag.ask(rag.configure({})), print)


@pytest.mark.guarantee("G7")
@pytest.mark.parametrize("concurrency", [1, 8, 300])
def test_a_dead_llm_stops_the_run_with_what_was_written(small: Index, concurrency: int) -> None:
    async def system(question: Question, ctx: Context) -> Answer:
        pool = await ctx.retrieve("moon of Jupiter", 5)
        if question.id == "q500":
            raise LLMUnavailableError("the server is gone")
        pool = await ctx.retrieve("mission to Saturn", 5)
        return Answer("found", ctx.evidence(pool))

    records: list[Record] = []
    with pytest.raises(LLMUnavailableError, match="the server is gone"):
        run(ask(100_000), system, records.append, small, concurrency=concurrency)
    # All that was finished: whole up to the slowest, and of those after it what was done by then.
    numbers = [int(record.id[1:]) for record in records]
    assert numbers == sorted(set(numbers)) and 500 not in numbers
    assert len(numbers) < 500 + concurrency
    assert all(record.state == "answered" and len(record.as_json()["evidence"]) == 5 for record in records)


def test_what_cannot_be_written_stops_the_run() -> None:
    def write(record: Record) -> None:
        if record.id == "q20":
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        run(ask(1000), direct, write)


def test_questions_that_break_midway_stop_the_run() -> None:
    def questions() -> Iterator[Question]:
        yield from ask(50)
        raise ValueError("the file has changed")

    records: list[Record] = []
    with pytest.raises(ValueError, match="the file has changed"):
        run(questions(), direct, records.append)
    assert len(records) <= 50


def test_memory_does_not_grow_with_the_number_of_questions() -> None:
    chosen = load_system("direct")
    system = chosen.ask(chosen.configure({}))

    def peak(n: int) -> int:
        tracemalloc.start()
        asyncio.run(answer_all(ask(n), system, None, INSTANT, lambda record: None, 64))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(100)  # what is made once
    # pydantic remembers short strings, 1.2 MB of them and no more. 4,500 records more would be 2.5 MB.
    assert peak(5_000) < peak(500) + 1_200_000


def test_a_line_of_answers_has_the_names_of_all_evidence(small: Index) -> None:
    """Names that were written with the evidence make the same line as names that are read from it."""
    segments = ScoredSegments(np.arange(len(small.corpus)), np.ones(len(small.corpus), np.float32))
    (cited,) = cite(small, [(segments, [])])
    known = with_names(Record("q", "answered", "a", None, cited.whole), cited.names)
    assert known.line() == Record("q", "answered", "a", None, cited.whole).line()
    assert [one["segment"] for one in orjson.loads(known.line())["evidence"]] == [
        small.corpus.segment(i)["id"] for i in range(len(small.corpus))
    ]


@pytest.mark.parametrize("ends", ["answered", "own evidence", "failed"])
def test_lists_of_passages_in_a_trace(small: Index, ends: str) -> None:
    """They become ids, or ids with scores, even if the question fails or has its own evidence."""

    async def system(question: Question, ctx: Context) -> Answer:
        pool = await ctx.retrieve("moons of Saturn", 3)
        nothing = await ctx.retrieve("qqqq", 3)
        trace = {"all": pool_ids(pool), "none": pool_ids(nothing), "rounds": [traced(pool), traced(nothing)]}
        own = b'[{"uri": "u", "snippet": "s"}]'
        answer = Answer("a", own if ends == "own evidence" else ctx.evidence(pool), trace)
        ctx.so_far(lambda: answer)
        if ends == "failed":
            raise CallError("no")
        return answer

    records: list[Record] = []
    run(ask(5), system, records.append, small)
    (expected,) = small.search("moons of Saturn", 3)
    ids = [small.corpus.segment(int(small.passages[i]))["id"] for i, _ in expected]
    assert len(ids) == 3
    for record in records:
        assert record.state == ("failed" if ends == "failed" else "answered")
        assert [one.uri for one in record.evidence] == (["u"] if ends == "own evidence" else record.uris)
        assert record.trace["all"] == ids and record.trace["none"] == []
        scored, nothing = record.trace["rounds"]
        assert nothing == {"evidence": []}
        for one, (_, score), id in zip(scored["evidence"], expected, ids, strict=True):
            assert one == {"segment": id, "score": pytest.approx(score, abs=1e-4)}


def test_the_kind_of_a_failure_is_for_programs(small: Index) -> None:
    """It is in the record, in the file, and in what is read back."""

    class Says(Instant):
        async def complete(self, request: Request) -> Completion:
            asked = repr(request.messages)
            if "refused" in asked:
                raise CallError("the server refuses it")
            return Completion("no JSON" if "babble" in asked else '{"answer": "Huygens"}', "stop")

    async def ask(question: Question, ctx: Context) -> Answer:
        if question.text == "broken":
            raise KeyError("a mistake of a system")
        if question.text == "slow":
            await asyncio.sleep(60)
        for _ in range(5 if question.text == "greedy" else 1):
            reply = await ctx.generate(DIRECT, question=question.text)
        return Answer(reply.answer)

    asked = ["who", "broken", "slow", "greedy", "babble", "refused"]
    questions = [Question(text, text) for text in asked]
    questions.append(Question("elsewhere", "who", documents=("nowhere",)))
    written: list[Record] = []
    asyncio.run(
        answer_all(iter(questions), ask, small, Says(), written.append, 8, budget=Budget(calls=4, seconds=2.0))
    )
    kinds = {record.id: record.error for record in written}
    assert kinds == {
        "who": None,
        "broken": "internal",
        "slow": "budget",
        "greedy": "budget",
        "babble": "reply",
        "refused": "call",
        "elsewhere": "question",
    }
    for record in written:
        assert Record.read(record.line()).error == record.error
        assert ("error" in orjson.loads(record.line())) == (record.state == "failed")
