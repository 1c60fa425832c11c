"""`pyfast.answer`: what may be given, what comes back; and that the command line does the same, byte for byte."""

import asyncio
import json
import logging
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import processes
import pytest
from grouped import grouped
from runs import Watched, records, traces

import pyfast
from pyfast.engine import Event
from pyfast.errors import InputError, LLMUnavailableError, ModelNotFoundError
from pyfast.llm import Completion, Request

ASKED = [{"id": "a", "question": "Who discovered Titan?"}, {"id": "b", "question": "Which moons has Saturn?"}]
TALK = {"id": "talk", "turns": [{"id": "t1", "question": "Who is Huygens?"}, {"id": "t2", "question": "When?"}]}


def test_strings_mappings_and_iterators_are_the_same(small: pyfast.Index, tmp_path: Path) -> None:
    async def slowly() -> AsyncIterator[dict[str, str]]:
        for question in ASKED:
            await asyncio.sleep(0)
            yield question

    (tmp_path / "q.jsonl").write_text("".join(json.dumps(question) + "\n" for question in ASKED))
    given: list[Any] = [
        ASKED,
        (question for question in ASKED),
        slowly(),
        tmp_path / "q.jsonl",
        [pyfast.Question(question["id"], question["question"]) for question in ASKED],
    ]
    runs = [pyfast.answer(questions, index=small, llm="instant", system="n2n") for questions in given]
    assert len({b"".join(record.line() for record in run.records) for run in runs}) == 1
    texts = pyfast.answer([question["question"] for question in ASKED], index=small, llm="instant", system="n2n")
    assert not {record.id for record in texts.records} & {"1", "2"}
    assert [record.answer for record in texts.records] == [record.answer for record in runs[0].records]


def test_records_are_typed_values(small: pyfast.Index) -> None:
    run = pyfast.answer(ASKED, index=small.folder, llm="instant", system="rag", settings={"k": 3})
    record = run.records[0]
    assert (record.id, record.state, type(record.answer)) == ("a", "answered", str)
    assert len(record.evidence) == 3 and all(isinstance(item, pyfast.Evidence) for item in record.evidence)
    best = record.evidence[0]
    assert best.snippet and best.uri and len(best.segment) == 16 and best.score is not None
    assert record.usage == pyfast.Usage(1, record.usage.prompt_tokens, record.usage.completion_tokens)
    assert pyfast.Record.read(record.line(), record.details) == record
    assert run.path is None and run.status.states == {"answered": 2} and run.status.stages
    assert repr(run) == "<pyfast.Run in memory, 2 of 2 questions>"


@pytest.mark.parametrize(
    "system",
    [
        "n2n",
        "hseq",
        "rag",
        "decompose",
        "cot",
        "direct",
        "iter_retgen",
        "ircot",
        "self_ask",
        "react",
        "flare",
        "adaptive_rag",
        "cascade",
        "self_consistency",
    ],
)
def test_the_command_line_writes_the_same_bytes(
    system: str, small: pyfast.Index, examples: Path, tmp_path: Path
) -> None:
    run = pyfast.answer(
        examples / "questions.jsonl",
        index=small,
        llm="instant",
        system=system,
        run=tmp_path / "api",
        concurrency=7,
    )
    command = ["answer", examples / "questions.jsonl", "--system", system, "--index", small.folder]
    done = processes.pyfast(*command, "--run", tmp_path / "cli", "--llm", "instant")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "api" / "answers.jsonl").read_bytes() == (tmp_path / "cli" / "answers.jsonl").read_bytes()
    assert traces(tmp_path / "api") == traces(tmp_path / "cli")
    beside = map(json.loads, traces(tmp_path / "cli").splitlines())
    for record, other, written in zip(run.records, records(tmp_path / "cli"), beside, strict=True):
        assert record.as_json() == other and record.trace == written["trace"]
        assert [item["uri"] for item in written["evidence"]] == [item.uri for item in record.evidence]


def test_a_run_goes_on(small: pyfast.Index, tmp_path: Path) -> None:
    """Also one whose questions came from a list: they are in its folder, and what it was started with counts."""
    llm = Watched()
    first = pyfast.answer(ASKED, index=small, llm=llm, system="rag", run=tmp_path / "run")
    assert first.session is not None and first.session.states == {"answered": 2}
    again = pyfast.answer(ASKED, index=small, llm=llm, system="rag", run=tmp_path / "run")
    assert again.session is not None and not again.session.states and again.status.states == {"answered": 2}
    assert [record.id for record in again.records] == ["a", "b"] and again.records[-1].id == "b"
    assert [record.id for record in again.records[:1]] == ["a"]
    assert sum(llm.asked.values()) == 2
    with pytest.raises(InputError, match="started with different values"):
        pyfast.answer(ASKED[:1], index=small, llm=llm, system="rag", run=tmp_path / "run")
    opened = pyfast.Run(tmp_path / "run")
    assert [record.answer for record in opened.records] == [record.answer for record in first.records]
    with pytest.raises(InputError, match="not a run folder"):
        pyfast.Run(tmp_path)


def test_conversations_of_a_list_go_on(small: pyfast.Index, tmp_path: Path) -> None:
    for _ in range(2):
        run = pyfast.answer([*ASKED, TALK], index=small, llm="instant", system="rag", run=tmp_path / "run")
        assert [record.id for record in run.records] == ["a", "b", "t1", "t2"]


@pytest.mark.parametrize(
    ("questions", "said"),
    [
        (b"Who?", "expected a question as a string"),
        ([], "there is no question"),
        ([3], "question 1: expected a string"),
        (["  "], "question 1: expected a `question`"),
        ([{"id": "a", "question": "x"}] * 2, "question 2: the id 'a' occurs twice"),
        ([{"id": 1.5, "question": "x"}], "question 1: expected an `id`"),
    ],
)
def test_questions_that_are_none(questions: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        pyfast.answer(questions, llm="instant", system="direct")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"system": "nonsense"}, "unknown system 'nonsense'"),
        ({"system": "rag"}, "rag needs an index"),
        ({"settings": {"k": 3}}, "direct has no setting 'k'"),
        ({"budget": {"calls": 0}}, "budget calls"),
        ({"max_failures": "x"}, "max_failures x"),
        ({"llm": "nonsense"}, "unknown llm 'nonsense'"),
        ({"restart": True}, "need the folder of a run"),
        ({"concurrency": 0}, "concurrency: expected a number of at least 1, got 0"),
        ({"limit": -1}, "limit: expected a number of at least 1"),
        (
            {"llm": Watched(), "llm_options": {"slots": 3}},
            "llm_options: can only be used with an LLM given as a string",
        ),
    ],
)
def test_what_does_not_fit(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        pyfast.answer(["Who?"], **grouped(**{"llm": "instant", "system": "direct", **given}))


class Minimal:
    """An LLM of two members."""

    fingerprint = "minimal-1"

    async def complete(self, request: Request) -> Completion:
        return Completion('{"answer": "Christiaan Huygens"}', "stop")


class Anonymous:
    async def complete(self, request: Request) -> Completion:
        return Completion('{"answer": "x"}', "stop")


def test_an_llm_needs_two_members(small: pyfast.Index, tmp_path: Path) -> None:
    llm: pyfast.LLM = Minimal()
    for run in (None, tmp_path / "run"):
        (record,) = pyfast.answer(["Who?"], index=small, llm=llm, system="rag", run=run).records
        assert record.answer == "Christiaan Huygens"
    anonymous: Any = Anonymous()
    assert pyfast.answer(["Who?"], llm=anonymous, system="direct").records[0].answer == "x"
    with pytest.raises(InputError, match='add the line `fingerprint = "anonymous-1"`'):
        pyfast.answer(["Who?"], llm=anonymous, system="direct", run=tmp_path / "other")
    assert not (tmp_path / "other").exists()


class Counted(Minimal):
    started = closed = 0

    async def start(self) -> None:
        self.started += 1

    async def close(self) -> None:
        self.closed += 1


def test_a_model_stays_loaded_between_calls() -> None:
    llm = Counted()
    for _ in range(3):
        pyfast.answer(["Who?"], llm=llm, system="direct")
    assert (llm.started, llm.closed) == (1, 0)

    async def service() -> None:
        async with pyfast.Engine(llm=llm) as engine:  # nobody uses it: it is closed there, and started here
            assert (llm.started, llm.closed) == (2, 1)
            await engine.answer("Who?", system="direct")
            with pytest.raises(InputError, match="another event loop in this process is using this model"):
                pyfast.answer(["Who?"], llm=llm, system="direct")

    asyncio.run(service())
    assert (llm.started, llm.closed) == (2, 2)
    pyfast.answer(["Who?"], llm=llm, system="direct")
    assert (llm.started, llm.closed) == (3, 2)


class Slow(Counted):
    events: list[str]

    def __init__(self) -> None:
        self.events = []

    async def start(self) -> None:
        self.events.append("start")

    async def close(self) -> None:
        self.events.append("closing")
        await asyncio.sleep(0.05)
        self.events.append("closed")


def test_nobody_gets_a_model_that_is_closing() -> None:
    llm = Slow()

    async def one(after: float) -> None:
        await asyncio.sleep(after)
        async with pyfast.Engine(llm=llm) as engine:
            await engine.answer("Who?", system="direct")

    async def both() -> None:
        await asyncio.gather(one(0), one(0.03))

    asyncio.run(both())
    assert llm.events == ["start", "closing", "closed", "start", "closing", "closed"]


class Failing(Minimal):
    fails = 1

    async def start(self) -> None:
        if self.fails:
            self.fails -= 1
            raise ModelNotFoundError("no such model")


def test_a_start_that_failed_is_tried_again() -> None:
    llm = Failing()
    with pytest.raises(ModelNotFoundError):
        pyfast.answer(["Who?"], llm=llm, system="direct")
    assert pyfast.answer(["Who?"], llm=llm, system="direct").status.states == {"answered": 1}


def test_inside_an_event_loop_and_from_several_threads(small: pyfast.Index) -> None:
    async def in_a_notebook() -> pyfast.Run:
        return pyfast.answer(ASKED, index=small, llm="instant", system="rag")

    assert asyncio.run(in_a_notebook()).status.states == {"answered": 2}
    llm, found = Watched(), []

    def one(number: int) -> None:
        found.append(pyfast.answer([f"question {number}"], index=small, llm=llm, system="rag").records[0].state)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == ["answered"] * 8


def test_events_and_stopping(small: pyfast.Index, tmp_path: Path) -> None:
    events: list[Event] = []
    stop = threading.Event()

    def hear(event: Event) -> None:
        events.append(event)
        if event.kind == "answered" and event.done == 5:
            stop.set()
            time.sleep(0.2)

    questions = [f"question {number}" for number in range(500)]
    given: dict[str, Any] = {"index": small, "llm": Watched(), "system": "rag", "run": tmp_path / "run"}
    run = pyfast.answer(questions, watch=pyfast.Watch(on_event=hear, stop=stop), **given, concurrency=2)
    assert 5 <= run.status.ended < 500 and run.status.running is False
    assert [event.kind for event in events[:2]] == ["starting", "started"]
    assert [event.done for event in events[2:]] == list(range(1, len(events) - 1))
    assert all(event.record is not None and event.total == 500 for event in events[2:])
    whole = pyfast.answer(questions, **given)
    assert whole.status.states == {"answered": 500}


def test_a_callback_that_blocks_is_told_so(small: pyfast.Index) -> None:
    def hear(event: Event) -> None:
        pyfast.answer(["x"], llm="instant", system="direct")

    with pytest.raises(InputError, match="callback"):
        pyfast.answer(["x"], llm="instant", system="direct", watch=pyfast.Watch(on_event=hear))


class Orderly(Minimal):
    ended = False

    async def complete(self, request: Request) -> Completion:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.2)
            self.ended = True
        raise AssertionError


@pytest.fixture
def keyboard() -> Iterator[None]:
    """As in a terminal: a process that was started in the background ignores the keyboard."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_what_is_interrupted_ends_in_order(keyboard: None) -> None:
    llm = Orderly()
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        pyfast.answer(["Who?"], llm=llm, system="direct")
    assert llm.ended


@pytest.mark.guarantee("G6")
def test_a_signal_that_another_thread_gets(keyboard: None) -> None:
    """The kernel gives a process's signal to any of its threads: it is heard all the same, and at once."""
    killer = threading.Timer(0.5, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGINT))
    killer.start()
    with pytest.raises(KeyboardInterrupt):
        pyfast.answer(
            ["Who?"], llm=Minimal(), system="direct", watch=pyfast.Watch(on_event=lambda event: killer.join(20))
        )
        raise AssertionError("it was heard when all was done")


def test_a_callback_that_fails_loses_nothing(small: pyfast.Index, tmp_path: Path) -> None:
    def hear(event: Event) -> None:
        if event.done == 3:
            raise ZeroDivisionError

    questions = [f"question {number}" for number in range(20)]
    given: dict[str, Any] = {"index": small, "llm": Watched(), "system": "rag", "run": tmp_path / "run"}
    with pytest.raises(ZeroDivisionError):
        pyfast.answer(questions, watch=pyfast.Watch(on_event=hear), **given)
    assert pyfast.answer(questions, **given).status.states == {"answered": 20}
    assert sum(given["llm"].asked.values()) == 20


def test_a_system_is_resumed_with_its_own_code_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of a user's: its module counts as pyfast's own code does."""
    source = """
from pyfast.engine import Answer, Context, Question
from pyfast.systems import Settings, System

async def answer(question: Question, ctx: Context, settings: Settings) -> Answer:
    return Answer("WORD", EVIDENCE)

SYSTEM = System("changing", answer, Settings, (), needs_index=False)
"""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "one_system.py").write_text(source.replace("WORD", "one").replace("EVIDENCE", "None"))
    (tmp_path / "other_system.py").write_text(source.replace("WORD", "other").replace("EVIDENCE", "None"))
    given: dict[str, Any] = {"llm": Minimal(), "run": tmp_path / "run"}
    assert pyfast.answer(["Who?"], system="one_system:SYSTEM", **given).records[0].answer == "one"
    with pytest.raises(InputError, match=r"system\.code was"):
        pyfast.answer(["Who?"], system="other_system:SYSTEM", **given)
    for number, evidence in enumerate(('b"no JSON"', 'b"{}"', "b'[{\"uri\": 1}]'")):
        (tmp_path / f"bad_{number}.py").write_text(source.replace("EVIDENCE", evidence))
        (record,) = pyfast.answer(["Who?"], system=f"bad_{number}:SYSTEM", llm=Minimal()).records
        assert record.state == "failed" and record.reason is not None and record.evidence == ()


class Endless(Minimal):
    async def complete(self, request: Request) -> Completion:
        await asyncio.Event().wait()
        raise AssertionError


def test_the_keyboard_interrupts_it(tmp_path: Path, keyboard: None) -> None:
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        pyfast.answer(["Who?"], llm=Endless(), system="direct", run=tmp_path / "run")
    run = pyfast.answer(["Who?"], llm=Minimal(), system="direct", run=tmp_path / "run")
    assert run.status.states == {"answered": 1}  # it goes on, and nobody has its folder


class Gone(Minimal):
    async def complete(self, request: Request) -> Completion:
        raise LLMUnavailableError("the server is gone")


def test_a_model_that_is_gone(small: pyfast.Index) -> None:
    with pytest.raises(LLMUnavailableError, match="gone"):
        pyfast.answer(ASKED, index=small, llm=Gone(), system="rag")


def test_a_run_in_memory_that_ends_early_has_its_records(small: pyfast.Index) -> None:
    def reply(request: Request) -> Any:
        return {"answer": "Titan"} if llm.given < 5 else LLMUnavailableError("gone")

    llm = Watched(reply)
    with pytest.raises(LLMUnavailableError) as error:
        pyfast.answer([f"question {i}" for i in range(9)], index=small, llm=llm, system="rag", concurrency=1)
    assert 1 <= len(error.value.records) <= 5 and error.value.records[0].answer == "Titan"


def test_a_run_that_is_open_sees_what_others_write(small: pyfast.Index, tmp_path: Path) -> None:
    given: dict[str, Any] = {"index": small, "llm": "instant", "system": "rag", "run": tmp_path / "run"}
    stop = threading.Event()
    stop.set()
    pyfast.answer(ASKED, watch=pyfast.Watch(stop=stop), **given, concurrency=1)
    run = pyfast.Run(tmp_path / "run")
    before = len(run.records)
    pyfast.answer(ASKED, **given)
    assert before < 2 and len(run.records) == 2 == len(list(run.records))


def test_it_logs_and_prints_nothing(
    examples: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.txt").write_text("Titan circles Saturn.")
    (tmp_path / "corpus" / "b.exe").write_text("no text")
    with caplog.at_level(logging.INFO, logger="pyfast"):
        index = pyfast.build_index(tmp_path / "corpus", tmp_path / "index")
        pyfast.answer(["Who?"], index=index, llm="instant", system="rag", run=tmp_path / "run")
        pyfast.answer(
            ["Who?"],
            index=index,
            llm="instant",
            system="rag",
            run=tmp_path / "run",
            options=pyfast.RunOptions(restart=True),
        )
    assert capfd.readouterr() == ("", "")
    assert any("left out" in message and "b.exe" in message for message in caplog.messages)
    assert any("the old run was moved to" in message for message in caplog.messages)


def test_documents_from_values(tmp_path: Path) -> None:
    def documents() -> Iterator[dict[str, Any]]:
        yield {"id": "t", "title": "Titan", "text": "Titan is a moon of Saturn."}
        yield {"kind": "table", "id": "m", "title": "Moons", "header": ["moon"], "rows": [["Io"], ["Europa"]]}
        yield {"kind": "kg", "id": "g", "title": "Facts", "triples": [["Io", "orbits", "Jupiter"]]}

    index = pyfast.build_index(documents(), tmp_path / "index")
    assert index.manifest["documents"] == 3 and index.manifest["passages"] == 4
    (pool,) = pyfast.open_index(tmp_path / "index").search(["moon of Saturn"], 1)
    assert index.text(int(pool.passages[0])).startswith("Titan")
    with pytest.raises(InputError, match='document 1: "kind" is null'):
        pyfast.build_index([{"id": "x"}], tmp_path / "other")


def test_evaluating_values(small: pyfast.Index) -> None:
    run = pyfast.answer(["Who?", "When?"], llm=Minimal(), system="direct")
    report: Any = pyfast.evaluate(
        run, [{"question": "When?", "answers": ["1655"]}, {"question": "Who?", "answers": ["Christiaan Huygens"]}]
    )
    assert (report.rows[0]["em"].value, report.not_run) == (0.5, ())
