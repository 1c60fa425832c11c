"""An LLM that answers nobody costs time, not answers; a call that fails while others pass fails alone."""

import asyncio
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fast_clock import FastLoop, run_fast
from hostile_server import counts, hostile
from runs import Described, Watched, answer_all, answers, ask_about, direct, go, records, winding

import pyfast
from pyfast.engine import Answer, Budget, Context, Question, Questions, Record, Summary, read_status, work_on
from pyfast.engine.outages import Outages, Waiting
from pyfast.errors import CallError, LLMUnavailableError, OutageError, RefusalError, RunError
from pyfast.llm import Completion, Request
from pyfast.llm.instant import Instant
from pyfast.llm.protocol import PROBE
from pyfast.systems.prompts import DIRECT
from pyfast.utils import event_loop

LENGTH_S = 13.0
PATIENCE_S = 1800.0


class Flaky(Instant):
    """Out for a few seconds, from its n-th call on; `fault` is what a call meets then. Calls take a second."""

    def __init__(self, out_at: int, fault: Callable[[], Any], length_s: float = LENGTH_S) -> None:
        super().__init__()
        self.out_at, self.fault, self.length_s = out_at, fault, length_s
        self.calls, self.ends = 0, 0.0

    async def complete(self, request: Request) -> Completion:
        clock = asyncio.get_running_loop().time
        self.calls += 1
        if self.calls == self.out_at:
            self.ends = clock() + self.length_s
        if clock() < self.ends:
            fault = self.fault()
            if isinstance(fault, Exception):
                raise fault
            await fault
        await asyncio.sleep(1)
        return await super().complete(request)


async def hang() -> None:
    await asyncio.Event().wait()


FAULTS: dict[str, Callable[[], Any]] = {
    "500": lambda: OutageError("answered 500"),
    "429": lambda: OutageError("answered 429", "busy"),
    "429 with a time": lambda: OutageError("answered 429", "busy", 4.0),
    "refused": lambda: OutageError("nothing answers"),
    "late": lambda: OutageError("no answer within 300 s", "slow"),
    "hangs": hang,
}


def answered(llm: Any, number: int = 40, **options: Any) -> tuple[list[Record], Summary, list[Waiting | None]]:
    """The records of a run in memory, what it did, and what was heard of outages."""
    written: list[Record] = []
    heard: list[Waiting | None] = []
    speed = options.pop("speed", 200.0)
    work = answer_all(
        iter(ask_about(number)),
        options.pop("ask", winding),
        None,
        llm,
        written.append,
        8,
        **{"outage_seconds": PATIENCE_S, "on_outage": heard.append, **options},
    )
    summary = run_fast(asyncio.wait_for(work, 100 * PATIENCE_S), speed)
    return written, summary, heard


@pytest.mark.guarantee("G7")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", FAULTS)
def test_an_outage_costs_no_answer(kind: str, seed: int) -> None:
    """At a random moment; the questions have less time than it lasts."""
    budget = Budget(seconds=40.0, call_seconds=8.0 if kind == "hangs" else None)
    speed = 40.0 if kind == "hangs" else 200.0  # at 200, a busy machine takes 8 s by standing still for 40 ms
    whole = answered(Flaky(0, hang), budget=budget, speed=speed)[0]
    out_at = random.Random(f"{kind} {seed}").randrange(1, 190)
    llm = Flaky(out_at, FAULTS[kind], 60.0)
    found, summary, heard = answered(llm, budget=budget, speed=speed)
    assert llm.calls > out_at
    assert found == whole and summary.states == {"answered": 40}
    assert heard and heard[-1] is None and all((said is None) == bool(i % 2) for i, said in enumerate(heard))


def test_questions_that_hang_keep_their_seconds() -> None:
    """No call has a time of its own: a question whose clock runs down while nobody is answered is not at fault."""
    budget = Budget(seconds=10.0)
    whole = answered(Flaky(0, hang), ask=direct, budget=budget)[0]
    found, _, heard = answered(Flaky(9, hang, 60.0), ask=direct, budget=budget)
    assert found == whole and len(heard) == 2


def test_a_question_that_is_slow_alone_runs_out_of_time() -> None:
    class Slow(Flaky):
        async def complete(self, request: Request) -> Completion:
            if "question 7" in request.messages[-1].content:
                await hang()
            return await super().complete(request)

    found, _, heard = answered(Slow(0, hang), ask=direct, budget=Budget(seconds=10.0))
    assert [record.id for record in found if record.state == "failed"] == ["q7"]
    assert found[7].reason == "not finished within the question's limit of 10 s" and heard == []


class Poisoned(Flaky):
    """Refuses one prompt for ever."""

    def __init__(self, fault: Callable[[], BaseException], word: str) -> None:
        super().__init__(0, hang)
        self.fault, self.word = fault, word

    async def complete(self, request: Request) -> Completion:
        if self.word in request.messages[-1].content:
            self.calls += 1
            await asyncio.sleep(0.1)
            raise self.fault()
        return await super().complete(request)


@pytest.mark.parametrize("kind", ["500", "429", "late"])
@pytest.mark.parametrize(("number", "word"), [(40, "question 7"), (1, "question 0"), (2, "question")])
def test_a_fault_that_follows_a_question_fails_it_alone(kind: str, number: int, word: str) -> None:
    """Also where nobody else is there to show that the LLM answers."""
    fault = FAULTS[kind]
    found, summary, heard = answered(Poisoned(fault, word), number, ask=direct)
    failed = {record.id: record.reason for record in found if record.state == "failed"}
    expected = {"q7"} if number == 40 else {f"q{i}" for i in range(number)}
    assert failed == dict.fromkeys(expected, str(fault())) and heard == []
    assert summary.states["answered"] == number - len(expected)


@pytest.mark.parametrize("kind", ["500", "429", "late"])
def test_a_server_that_answers_only_small_calls_stops_the_run(kind: str) -> None:
    with pytest.raises(LLMUnavailableError, match="the LLM answers only short test calls"):
        answered(Poisoned(FAULTS[kind], "question"), 40, ask=direct)


def test_a_server_that_refuses_all_but_small_calls_stops_the_run_while_others_are_in_flight() -> None:
    class Refusing(Poisoned):
        async def complete(self, request: Request) -> Completion:
            if request != PROBE:
                await asyncio.sleep(random.random() * 9)
            return await super().complete(request)

    written: list[Record] = []
    llm = Refusing(lambda: RefusalError("check your key", "no long calls"), "question")
    with pytest.raises(LLMUnavailableError, match=r"^no long calls; the LLM answers only short test calls"):
        run_fast(answer_all(iter(ask_about(400)), direct, None, llm, written.append, 8), 500.0)
    assert len(written) <= 8 + 4


@pytest.mark.guarantee("G4")
@pytest.mark.parametrize("fault", [FAULTS["500"], lambda: RefusalError("HTTP 403", status=403)])
def test_a_question_whose_calls_all_fail_at_once_fails_alone(fault: Callable[[], Exception]) -> None:
    """However many calls it makes: the failed questions count, and three of them are no sign of an outage."""

    async def five_at_once(question: Question, ctx: Context) -> Answer:
        calls = [direct(Question(question.id, f"{question.text} {part}"), ctx) for part in range(5)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return Answer("five", None)

    found, _, heard = answered(Poisoned(fault, "question"), 3, ask=five_at_once)
    assert [record.state for record in found] == ["failed"] * 3 and heard == []


@pytest.mark.parametrize("patience_s", [0.0, 600.0])
def test_after_so_long_the_run_stops_and_no_question_has_failed(patience_s: float, tmp_path: Path) -> None:
    llm = Flaky(30, FAULTS["500"], 1e9)
    with pytest.raises(LLMUnavailableError, match="answered 500") as stopped:
        written: list[Record] = []
        run_fast(
            answer_all(iter(ask_about(40)), direct, None, llm, written.append, 8, outage_seconds=patience_s), 500
        )
    assert str(stopped.value) == ("answered 500" if not patience_s else "answered 500; pyfast waited for 0:10:00")
    assert written and {record.state for record in written} == {"answered"}


def test_a_time_that_the_server_asks_for_is_told_at_once_and_waited_for() -> None:
    hours = lambda: OutageError("answered 429", "busy", 7200.0)  # noqa: E731
    with pytest.raises(LLMUnavailableError, match="asks for a pause of 2:00:00, which is longer than allowed"):
        answered(Flaky(9, hours, 7200.0), ask=direct)
    minutes = lambda: OutageError("answered 429", "busy", 600.0)  # noqa: E731
    llm = Flaky(9, minutes, 600.0)
    found, _, heard = answered(llm, ask=direct, outage_seconds=3000.0, speed=1000.0)
    assert {record.state for record in found} == {"answered"} and len(heard) == 2
    assert llm.calls < 40 + 8 + 6  # it was left alone all the time


def test_a_health_check_respects_a_long_pause_that_the_server_asks_for() -> None:
    async def check() -> int:
        outages = Outages(llm := Flaky(1, lambda: OutageError("answered 429", "busy", 600.0), 1e9))
        with pytest.raises(OutageError):
            await outages.complete(PROBE)
        for _ in range(1500):
            outages.check()
            await asyncio.sleep(1)
        return llm.calls

    assert run_fast(check()) == 4  # the call and its probe, and one probe after 600 and 1,200 seconds


def test_a_callback_that_fails_fails_no_question() -> None:
    def hear(waiting: Waiting | None) -> None:
        raise ZeroDivisionError("no")

    with pytest.raises(RunError, match="the callback for outages failed: ZeroDivisionError: no"):
        answered(Flaky(9, FAULTS["500"]), ask=direct, on_outage=hear)


def test_a_prompt_that_is_sent_away_for_long_fails_alone() -> None:
    found, _, heard = answered(
        Poisoned(lambda: OutageError("answered 429", "busy", 90.0), "question 7"), ask=direct
    )
    assert [record.id for record in found if record.state == "failed"] == ["q7"] and heard == []


def test_a_server_that_stands_still_and_then_answers_what_it_held() -> None:
    class Frozen(Flaky):
        """As stopped and continued: who asked is answered late."""

        async def complete(self, request: Request) -> Completion:
            clock = asyncio.get_running_loop().time
            self.calls += 1
            if self.calls == 9:
                self.ends = clock() + LENGTH_S
            await asyncio.sleep(max(self.ends - clock(), 0.5))
            return await Instant.complete(self, request)

    budget = Budget(seconds=10.0)
    # Ten seconds are half a second here: a busy machine may stand still for a fifth of one.
    found = answered(Frozen(0, hang), ask=direct, budget=budget, speed=20.0)[0]
    assert {record.state for record in found} == {"answered"}


def test_the_same_command_ends_where_many_fail_again(tmp_path: Path) -> None:
    """However many calls fail on their way, once more and alone: the run that was done is done again."""

    def reply(request: Request) -> Any:
        number = int(request.messages[-1].content.split()[-1]) if request != PROBE else 0
        return OutageError("answered 500") if number % 10 == 3 else {"answer": "yes", "reasoning": "so"}

    for _ in range(2):
        run_fast(work_on(described(tmp_path / "run", Watched(reply), 60)), 200.0)
        found = records(tmp_path / "run")
        assert [int(record["id"][1:]) for record in found if record["state"] == "failed"] == [
            3,
            13,
            23,
            33,
            43,
            53,
        ]


def described(folder: Path, llm: Any, number: int) -> Described:
    return Described(
        folder=folder,
        questions=Questions(lambda: iter(ask_about(number)), number, "of a test"),
        system="test",
        ask=direct,
        llm=llm,
    )


def test_stopped_while_it_waits() -> None:
    """What is in progress cannot be finished: the run ends in order, without it."""

    async def work() -> tuple[Summary, list[Record]]:
        stop, written = asyncio.Event(), list[Record]()

        def heard(waiting: Waiting | None) -> None:
            if waiting is not None:
                asyncio.get_running_loop().call_later(5, stop.set)

        llm = Flaky(20, FAULTS["refused"], 1e9)
        done = await answer_all(
            iter(ask_about(40)),
            direct,
            None,
            llm,
            written.append,
            8,
            stop=stop,
            outage_seconds=1e6,
            on_outage=heard,
        )
        return done, written

    summary, written = run_fast(work())
    assert 0 < len(written) < 40 and summary.states == {"answered": len(written)}


def test_the_folder_says_that_it_waits(tmp_path: Path) -> None:
    llm = Flaky(5, FAULTS["500"], 4.0)
    looked = []

    def hear(event: Any) -> None:
        if event.kind in ("waiting", "answering"):
            looked.append((event.kind, event.waiting, read_status(tmp_path / "run").waiting))

    job = Described(
        folder=tmp_path / "run",
        questions=Questions(lambda: iter(ask_about(9)), 9, "of a test"),
        system="test",
        ask=direct,
        llm=llm,
    )
    run_fast(work_on(job, None, hear))
    (waiting, since, seen), (again, none, gone) = looked
    assert (waiting, again, none, gone) == ("waiting", "answering", None, None)
    assert since == seen and seen is not None and seen.reason == "answered 500"
    assert sorted(path.name for path in (tmp_path / "run").iterdir() if "journal" not in path.name)[:1] != [
        "outage"
    ]


def test_the_same_command_asks_again(tmp_path: Path) -> None:
    """Questions whose calls failed on their way, and no others; their answers come where they belong."""
    failing = {"on its way": OutageError("answered 500"), "refused": CallError("too long")}

    def reply(request: Request) -> Any:
        text = request.messages[-1].content
        fault = "on its way" if "question 3" in text else "refused" if "question 5" in text else ""
        return failing.get(fault) or {"answer": "yes", "reasoning": "so"}

    first = Watched(reply)
    go(tmp_path / "run", direct, first, ask_about(9))
    assert [record["id"] for record in records(tmp_path / "run") if record["state"] == "failed"] == ["q3", "q5"]
    del failing["on its way"]
    second = Watched(reply)
    go(tmp_path / "run", direct, second, ask_about(9))
    assert sum(second.asked.values()) == 1
    assert [record["id"] for record in records(tmp_path / "run") if record["state"] == "failed"] == ["q5"]
    go(tmp_path / "whole", direct, Watched(reply), ask_about(9))
    assert answers(tmp_path / "run") == answers(tmp_path / "whole")
    third = Watched(reply)
    go(tmp_path / "run", direct, third, ask_about(9))
    assert sum(third.asked.values()) == 0


def test_what_the_llm_did_say_is_not_asked_again(tmp_path: Path) -> None:
    """Of a question of three calls the last failed on its way: the same command makes that call alone."""

    async def in_three_steps(question: Question, ctx: Context) -> Answer:
        said = [(await ctx.generate(DIRECT, question=f"{question.text}, {step}")).answer for step in range(3)]
        return Answer(" ".join(said))

    def reply(request: Request) -> Any:
        text = request.messages[-1].content
        return OutageError("answered 500") if is_out and "question 3, 2" in text else {"answer": text[-3:]}

    is_out = True
    go(tmp_path / "run", in_three_steps, Watched(reply), ask_about(9))
    assert [record["id"] for record in records(tmp_path / "run") if record["state"] == "failed"] == ["q3"]
    is_out = False
    go(tmp_path / "run", in_three_steps, again := Watched(reply), ask_about(9))
    assert sum(again.asked.values()) == 1
    go(tmp_path / "whole", in_three_steps, Watched(reply), ask_about(9))
    assert answers(tmp_path / "run") == answers(tmp_path / "whole")


class OneAtATime(Instant):
    """Busy: calls take 40 seconds, one after the other, and a probe waits in the queue like any other."""

    def __init__(self) -> None:
        super().__init__()
        self.slot = asyncio.Lock()

    async def complete(self, request: Request) -> Completion:
        async with self.slot:
            await asyncio.sleep(40)
            return await super().complete(request)


@pytest.mark.parametrize("patience_s", [0.0, PATIENCE_S])
def test_a_busy_llm_is_not_out(patience_s: float) -> None:
    """Who waits too long in its queue fails, and nobody else; nothing reports an outage."""
    budget = Budget(seconds=100.0)
    found, _, told = answered(OneAtATime(), 8, ask=direct, budget=budget, outage_seconds=patience_s)
    states = [record.state for record in found]
    assert len(states) == 8 and "answered" in states and told == []


@pytest.mark.parametrize("patience_s", [0.0, PATIENCE_S])
def test_an_llm_that_answers_calls_while_its_probes_hang_is_not_out(patience_s: float) -> None:
    """The probes get lost for 29 s, but a call that began before them is answered meanwhile."""

    class LosesProbes(Instant):
        began: float | None = None
        failed = False

        async def complete(self, request: Request) -> Completion:
            clock = asyncio.get_running_loop().time
            if request is PROBE:
                self.began = self.began or clock()
                if clock() - self.began < 29.0:
                    await hang()
            elif "question 0" in request.messages[-1].content and not self.failed:
                self.failed = True
                await asyncio.sleep(1)
                raise OutageError("answered 500")
            elif "question 1" in request.messages[-1].content:
                await asyncio.sleep(15)
            return await super().complete(request)

    found, _, told = answered(LosesProbes(), 2, ask=direct, outage_seconds=patience_s, speed=20.0)
    assert [record.state for record in found] == ["answered"] * 2 and told == []


def test_a_stop_is_heard_while_a_probe_hangs() -> None:
    """At once, and not when the probes are given up after half a minute."""

    async def work() -> float:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        set_at = 0.0

        def set_stop() -> None:
            nonlocal set_at
            set_at = loop.time()
            stop.set()

        def heard(waiting: Waiting | None) -> None:
            if waiting is not None:
                loop.call_later(3, set_stop)  # the first pause is over, and the next probe hangs

        outages = Outages(Flaky(1, hang, 1e9), 1e6, heard, stop)
        with pytest.raises(LLMUnavailableError, match="stopped while waiting"):
            await outages.complete(PROBE, 1.0)
        return loop.time() - set_at

    assert run_fast(work(), 10.0) < 5.0


def test_a_timeout_that_the_llm_raises_itself_is_no_reason_to_ask_all_the_time() -> None:
    """The question's seconds are not over: it was asked again at once, thousands of times."""
    llm = Poisoned(lambda: TimeoutError("read timed out"), "question 7")
    found, _, heard = answered(llm, ask=direct, budget=Budget(seconds=60.0))
    assert [record.id for record in found if record.state == "failed"] == ["q7"] and heard == []
    assert found[7].reason == "the LLM did not answer in time: read timed out" and llm.calls < 50


@pytest.mark.parametrize("is_probe", [False, True])
def test_a_call_that_the_llm_cancels_loses_no_question(is_probe: bool) -> None:
    """Nobody asked for it: it ended the coroutine that asked, and the run ended in order without its questions."""

    class Cancelling(Poisoned):
        async def complete(self, request: Request) -> Completion:
            if request == PROBE:
                raise asyncio.CancelledError
            return await super().complete(request)

    fault = OutageError("answered 500") if is_probe else asyncio.CancelledError()
    found, _, heard = answered(Cancelling(lambda: fault, "question 7"), ask=direct)
    assert [record.id for record in found] == [f"q{i}" for i in range(40)] and heard == []
    assert [record.id for record in found if record.state == "failed"] == ["q7"]


def test_a_server_that_every_prompt_takes_down_is_not_waited_for_for_ever() -> None:
    """It comes back, answers a probe, and the next prompt takes it down again: all these outages are one."""

    class Falling(Flaky):
        async def complete(self, request: Request) -> Completion:
            clock = asyncio.get_running_loop().time
            await asyncio.sleep(0.1)
            if clock() >= self.ends and request == PROBE:
                return await Instant.complete(self, request)
            if clock() >= self.ends:
                self.ends = clock() + 30.0
            raise OutageError("nothing answers")

    told = "nothing answers; (pyfast waited for 0:10:00|the LLM answers only short test calls)"
    with pytest.raises(LLMUnavailableError, match=told):
        answered(Falling(0, hang), ask=direct, outage_seconds=600.0, speed=1000.0)


@pytest.mark.parametrize(("number", "word"), [(40, "question 7"), (1, "question 0")])
def test_a_prompt_that_takes_the_server_down_fails_alone(number: int, word: str) -> None:
    """It comes back after half a minute each time; all other questions are answered, and the run ends."""

    class Felled(Flaky):
        async def complete(self, request: Request) -> Completion:
            clock = asyncio.get_running_loop().time
            await asyncio.sleep(0.1)
            if clock() >= self.ends and word not in request.messages[-1].content:
                return await Instant.complete(self, request)
            if clock() >= self.ends:
                self.ends = clock() + 30.0
            raise OutageError("nothing answers")

    found, summary, heard = answered(Felled(0, hang), number, ask=direct)
    failed = {record.id: record.reason for record in found if record.state == "failed"}
    told = "nothing answers; the LLM went down all 3 times that it worked on this call alone"
    assert failed.keys() == {f"q{word.split()[1]}"} and len(heard) >= 2
    assert number > 1 or (failed["q0"] == told and len(heard) == 2 * 3)  # else others may have passed meanwhile
    assert summary.states["answered"] == number - 1


@pytest.mark.parametrize("times", [3, 99])
def test_a_call_that_only_runs_whenever_the_server_goes_down_is_asked_alone(times: int) -> None:
    """Others are answered until then each time, so it looks like the cause; then it must be."""
    went_down = 0

    class Unlucky(Flaky):
        async def complete(self, request: Request) -> Completion:
            nonlocal went_down
            clock = asyncio.get_running_loop().time
            is_seven = request.messages[-1].content.rstrip(" ?").endswith("question 7")
            await asyncio.sleep(2.0 if is_seven else 0.1)
            if is_seven and clock() >= self.ends and went_down < times:
                went_down += 1
                self.ends = clock() + 30.0
            if clock() < self.ends:
                raise OutageError("nothing answers")
            return await Instant.complete(self, request)

    found, _, heard = answered(Unlucky(0, hang), 3000, ask=direct, speed=50.0)
    told = (
        "nothing answers; the LLM went down 3 times while it worked on this call, the last time on this call alone"
    )
    # On a busy machine, no other call may have been answered shortly before a fall: it then proves nothing.
    assert (went_down == 3 if times == 3 else 4 <= went_down <= 9) and len(heard) == 2 * went_down
    assert {r.id: r.reason for r in found if r.state == "failed"} == ({} if times == 3 else {"q7": told})


OVER_SOCKETS = ("error", "busy", "refused", "hanging")
SPEED = 20.0


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Blocking calls run on a fast clock."""
    monkeypatch.setattr("pyfast.utils.event_loop._running", None)
    monkeypatch.setattr("pyfast.utils.event_loop.asyncio.new_event_loop", lambda: FastLoop(SPEED))
    yield
    assert event_loop._running is not None
    event_loop._running[1].call_soon_threadsafe(event_loop._running[1].stop)


def over_sockets(folder: Path, index: pyfast.Index, system: str, *options: str) -> bytes:
    """The answers of a run of 24 questions, each with less time than the outage lasts."""
    number = 6 if system == "mtqa" else 24  # it asks forty times as much
    asked = [
        {"id": f"q{i}", "question": f"Which moons has Saturn, and who found number {i}?"} for i in range(number)
    ]
    with hostile("--delay-ms", "5", *options) as url:
        run = pyfast.answer(
            asked,
            index=index,
            llm=f"openai:m@{url}",
            llm_options={"timeout_s": 60.0},
            system=system,
            settings={"graph": "off"} if system == "graph_convqa" else None,
            run=folder,
            concurrency=8,
        )
        if options:
            assert counts(url)["requests"] > int(options[-1].split(",")[1])
    assert run.status.waiting is None and not (folder / "outage.json").exists()
    return answers(folder)


@pytest.mark.parametrize("kind", OVER_SOCKETS)
@pytest.mark.parametrize(
    "system",
    [
        name if name == "n2n" else pytest.param(name, marks=pytest.mark.slow(suite="crashes"))
        for name in pyfast.systems.names()
    ],
)
def test_thirteen_seconds_over_a_real_socket(
    system: str, kind: str, small: pyfast.Index, tmp_path: Path, fast: None
) -> None:
    """Every system, at a random moment: the run ends as one that nothing happened to, by one command."""
    whole = over_sockets(tmp_path / "whole", small, system)
    at = random.Random(f"{system} {kind}").randrange(1, 24)
    out = over_sockets(tmp_path / "run", small, system, "--outage", f"{kind},{at},{LENGTH_S / SPEED}")
    assert out == whole and b'"failed"' not in out


@pytest.mark.slow(suite="storms")
def test_five_minutes_of_each_kind(small: pyfast.Index, tmp_path: Path) -> None:
    """Real ones, all at once: four servers, four commands."""

    def go_on(kind: str) -> bytes:
        return over_sockets(tmp_path / kind, small, "rag", "--outage", f"{kind},9,300")

    whole = over_sockets(tmp_path / "whole", small, "rag")
    with ThreadPoolExecutor(len(OVER_SOCKETS)) as threads:
        assert list(threads.map(go_on, OVER_SOCKETS)) == [whole] * len(OVER_SOCKETS)
