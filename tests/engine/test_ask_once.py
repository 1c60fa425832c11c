"""Questions that make equal requests ask the LLM once (`RunOptions.ask_once`). A server in a process of its own
counts the calls."""

import asyncio
import contextlib
import json
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from batch_server import batch_server
from batch_server import counts as counts_of_batches
from grouped import grouped
from hostile_server import allow, counts, hostile
from processes import Session
from runs import Watched, answers, direct, go, moody, traces, winding

import pyfast
from pyfast.engine import Answer, Budget, Context, Question, Summary
from pyfast.engine.journal.journal import Journal
from pyfast.errors import CallError, InputError, RunError
from pyfast.llm import Completion
from pyfast.systems.prompts import DIRECT
from pyfast.utils.options import RunOptions, Sampling

DISTINCT, TIMES = 12, 5
ONCE = RunOptions(ask_once=True)


def write(path: Path) -> Path:
    """Each question, several times, far apart and side by side."""
    texts = [f"Who built bridge {i}?" for i in range(DISTINCT)]
    lines = [{"id": f"q{n}", "question": text} for n, text in enumerate(texts * (TIMES - 1) + sorted(texts))]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def session(questions: Path, run: Path, url: str, *more: object) -> Session:
    given = ["--system", "direct", "--llm", f"openai:hostile@{url}", "--concurrency", 16]
    return Session(run, questions, *given, *more)


def asked(questions: Path, run: Path, *more: object, weights: str = "good=1") -> tuple[Counter[str], str]:
    """What the server was asked in a whole run, and what the run printed."""
    with hostile("--weights", weights) as url:
        one = session(questions, run, url, *more)
        assert one.ended() == 0, one.told
        return Counter(counts(url)["bodies"]), one.told


def test_the_server_counts_each_request_once_and_answers_are_the_same(tmp_path: Path) -> None:
    questions = write(tmp_path / "q.jsonl")
    each, _ = asked(questions, tmp_path / "each")
    once, told = asked(questions, tmp_path / "once", "--ask-once")
    assert set(each.values()) == {TIMES} and once == Counter(dict.fromkeys(each, 1))
    assert answers(tmp_path / "each") == answers(tmp_path / "once")
    assert traces(tmp_path / "each") == traces(tmp_path / "once")
    calls, shared = DISTINCT * TIMES, DISTINCT * (TIMES - 1)
    assert f"{calls} LLM calls ({shared} reused)" in told
    before, status = (pyfast.Run(tmp_path / name).status for name in ("each", "once"))
    assert (status.llm_calls, status.reused) == (before.llm_calls, shared) == (calls, shared)
    assert status.prompt_tokens == before.prompt_tokens and status.reused_prompt_tokens > 0
    assert pyfast.verify(tmp_path / "once").passed
    again, _ = asked(questions, tmp_path / "again", "--reuse", tmp_path / "once")
    assert not again and answers(tmp_path / "again") == answers(tmp_path / "each")


def stored(run: Path) -> int:
    """How many different requests have a reply in the journal."""
    with contextlib.closing(sqlite3.connect(run / "journal.sqlite")) as database:
        return int(database.execute("SELECT count(DISTINCT entry ->> 1) FROM completions").fetchone()[0])


def test_killed_again_and_again_no_stored_reply_is_asked_again(tmp_path: Path) -> None:
    questions, run = write(tmp_path / "q.jsonl"), tmp_path / "run"
    asked(questions, tmp_path / "each")
    sent = known = 0

    def all_wait() -> bool:
        return counts(url)["requests"] == sent + DISTINCT - known and stored(run) == known + 2

    with hostile("--allow", "0") as url:
        for _ in range(3):  # Each time, the server answers two of the requests that the run still needs.
            allow(url, sent + 2)
            one = session(questions, run, url, "--ask-once")
            one.until(all_wait)
            one.kill()
            sent, known = counts(url)["requests"], stored(run)
        allow(url, 10**9)
        one = session(questions, run, url, "--ask-once")
        assert one.ended() == 0, one.told
        assert counts(url)["requests"] == sent + DISTINCT - 6
    assert answers(run) == answers(tmp_path / "each") and traces(run) == traces(tmp_path / "each")
    assert pyfast.Run(run).status.reused == DISTINCT * (TIMES - 1)


def test_calls_that_fail_on_the_way_change_no_answer(tmp_path: Path) -> None:
    questions = write(tmp_path / "q.jsonl")
    each, _ = asked(questions, tmp_path / "each")
    once, _ = asked(questions, tmp_path / "once", "--ask-once", weights="good=3,cut=1,error=1")
    assert answers(tmp_path / "once") == answers(tmp_path / "each")
    assert each.keys() <= once.keys() and once.total() < each.total()


class Slow(Watched):
    """Answers after some turns of the loop, so that all questions ask while the first call is in flight."""

    async def complete(self, request: Any) -> Completion:
        await asyncio.sleep(0.02)
        return await super().complete(request)


def equal(number: int) -> list[Question]:
    return [Question(f"q{i}", "Who?") for i in range(number)]


def run(folder: Path, llm: Watched, questions: list[Question], ask: Any = direct, **more: Any) -> Summary:
    return go(folder, ask, llm, questions, **{"options": ONCE, **more})


def test_a_call_that_fails_is_not_shared(tmp_path: Path) -> None:
    """Those that waited for it ask for themselves, as without the option."""
    first = iter([CallError("no")])
    llm = Slow(lambda _: next(first, {"answer": "yes"}))
    summary = run(tmp_path / "run", llm, equal(6), concurrency=6)
    assert summary.states == {"answered": 5, "failed": 1} and llm.given == 6 and not summary.reused


@pytest.mark.parametrize("concurrency", [1, 8])
def test_any_reply_and_any_failure_gives_the_same_answers(concurrency: int, tmp_path: Path) -> None:
    questions = [Question(f"q{i}", f"question {i % 9}") for i in range(40)]
    each, once = Watched(moody), Watched(moody)
    go(tmp_path / "each", winding, each, questions, concurrency=concurrency)
    summary = run(tmp_path / "once", once, questions, winding, concurrency=concurrency)
    assert answers(tmp_path / "each") == answers(tmp_path / "once")
    assert traces(tmp_path / "each") == traces(tmp_path / "once")
    # Only requests whose calls fail are asked more than once.
    with contextlib.closing(Journal(tmp_path / "once/journal.sqlite")) as journal:
        rows = [row for number in range(40) for row in journal.past(number)[0].items()]
    failed = {key.partition(":")[2] for (key, _), outcome in rows if isinstance(outcome, CallError)}
    assert {digest for digest, times in once.asked.items() if times > 1} <= failed
    assert once.given == each.given - summary.reused


def test_the_first_pays_and_each_question_keeps_to_its_own_budget(tmp_path: Path) -> None:
    llm, budget = Slow(lambda _: {"answer": "yes"}), Budget(run_tokens=230)  # A call has 110 tokens.
    questions = [*equal(5), Question("a", "A?"), Question("b", "B?"), Question("c", "C?")]
    with pytest.raises(RunError, match="limit of 230 tokens"):
        run(tmp_path / "run", llm, questions, budget=budget, concurrency=1)
    assert llm.given == 3
    with pytest.raises(RunError, match="limit of 230 tokens"):  # as read from the journal
        run(tmp_path / "run", llm, questions, budget=budget, concurrency=1)
    assert run(tmp_path / "run", llm, questions).reused == 0 and llm.given == 4

    async def twice(question: Question, ctx: Context) -> Answer:
        first = await ctx.generate(DIRECT, question="the same for all")
        return Answer((await ctx.generate(DIRECT, question=question.text + first.answer)).answer)

    for budget in (Budget(tokens=100), Budget(calls=1)):
        folders = tmp_path / f"each{budget.calls}", tmp_path / f"once{budget.calls}"
        for folder, options in zip(folders, (RunOptions(), ONCE), strict=True):
            limited = Watched(lambda _: {"answer": "yes"})
            assert run(folder, limited, equal(3), twice, budget=budget, options=options).states == {"failed": 3}
            assert limited.given == (1 if options.ask_once else 3)
        assert answers(folders[0]) == answers(folders[1])


def test_samples_are_not_shared(tmp_path: Path) -> None:
    number = iter(range(9))
    llm = Watched(lambda _: {"answer": f"sample {next(number)}"})
    assert run(tmp_path / "run", llm, equal(3), sampling=Sampling(0.7)).reused == 0 and llm.given == 3


def test_questions_whose_time_is_up_fail_as_without_it(tmp_path: Path) -> None:
    """One asks, the other waits for its reply, and the reply comes too late for both."""

    class Late(Watched):
        async def complete(self, request: Any) -> Completion:
            await asyncio.sleep(0.3)
            return await super().complete(request)

    late, limited = Late(lambda _: {"answer": "yes"}), Budget(seconds=0.1)
    for name, options in (("each", RunOptions()), ("once", ONCE)):
        run(tmp_path / name, late, equal(2), concurrency=2, budget=limited, options=options)
    assert answers(tmp_path / "once") == answers(tmp_path / "each")
    again, probes = RunOptions(ask_once=True, retry_failed=True), late.given
    assert run(tmp_path / "once", late, equal(2), options=again).states == {"answered": 2}
    assert late.given == probes + 1


def test_failed_questions_that_are_tried_again_ask_once_too(tmp_path: Path) -> None:
    run(tmp_path / "run", Watched(lambda _: "no JSON"), equal(4))
    llm = Watched(lambda _: {"answer": "yes"})
    again = RunOptions(ask_once=True, retry_failed=True)
    assert run(tmp_path / "run", llm, equal(4), options=again).states == {"answered": 4} and llm.given == 1


def test_a_damaged_reply_is_not_shared(tmp_path: Path) -> None:
    stop = asyncio.Event()
    llm = Watched(lambda _: {"answer": "yes"}, lambda _: stop.set())
    run(tmp_path / "run", llm, equal(2), concurrency=1, stop=stop)
    with sqlite3.connect(tmp_path / "run/journal.sqlite") as database:
        database.execute("UPDATE completions SET entry = replace(entry, 'stop', 'step')")
    assert run(tmp_path / "run", llm, equal(2), concurrency=1).states == {"answered": 1} and llm.given == 2


def test_a_batch_has_each_request_once(tmp_path: Path) -> None:
    questions = [f"Who built it ({i % 4})?" for i in range(20)]
    with batch_server() as url:
        fast = {"poll_s": 0.05, "settle_s": 0.5, "quiet_s": 5.0}  # Without `all_wait`, nothing would be sent soon.
        given = {"llm": f"batch:m@{url}", "llm_options": fast, "system": "direct"}
        made = pyfast.answer(questions, **grouped(**given, run=tmp_path / "run", ask_once=True))
        told = counts_of_batches(url)
    assert told["custom_ids"] == 4 and told["batches"] == 1 and made.status.reused == 16
    assert pyfast.verify(tmp_path / "run").passed


def test_it_needs_a_folder() -> None:
    with pytest.raises(InputError, match="ask_once and reuse need the folder of a run"):
        pyfast.answer(["Who?"], llm="instant", system="direct", options=ONCE)
