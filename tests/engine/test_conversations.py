"""Conversations in a run: turns one after the other, each with what became of the earlier ones; in order."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from runs import WORD, Watched, answer_all, answers, go, moody, records

from pyfast.engine import Answer, Budget, Context, Question, Record, read_questions, run
from pyfast.engine.questions import questions_in
from pyfast.errors import CallError, InputError, RunError
from pyfast.llm import open_llm

LENGTHS = [3, 1, 0, 4, 2]
"""Turns of each conversation; 0: a question alone"""


def conversations() -> list[Question]:
    found = []
    for number, length in enumerate(LENGTHS):
        if not length:
            found.append(Question(f"alone-{number}", "alone?"))
        found += [Question(f"{number}.{turn}", f"turn {turn}", f"c{number}", ("gold",)) for turn in range(length)]
    return found


async def chatting(question: Question, ctx: Context) -> Answer:
    """Says what it heard before; some turns fail."""
    heard = " ".join("-" if answer is None else str(answer.text) for _, answer in ctx.past)
    assert all(earlier.conversation == question.conversation for earlier, _ in ctx.past)
    said = (await ctx.generate(WORD, question=f"{heard} {question.id}")).answer
    return Answer(said, trace={"heard": heard, "turns": [earlier.id for earlier, _ in ctx.past]})


def test_each_turn_hears_the_ones_before(tmp_path: Path) -> None:
    def reply(request: Any) -> Any:
        last = request.messages[-1].content.split()[-1]
        return CallError("no luck") if last == "0.1" else {"answer": f"<{last}>"}

    runs = []
    for concurrency in (1, 2, 64):
        go(tmp_path / str(concurrency), chatting, Watched(reply), conversations(), concurrency=concurrency)
        runs.append(answers(tmp_path / str(concurrency)))
    assert runs[0] == runs[1] == runs[2]
    found = {record["id"]: record for record in records(tmp_path / "1")}
    assert list(found) == [question.id for question in conversations()]
    assert found["0.2"]["trace"] == {"heard": "<0.0> -", "turns": ["0.0", "0.1"]}
    assert found["0.1"]["state"] == "failed" and found["0.2"]["state"] == "answered"
    assert found["alone-2"]["trace"] == {"heard": "", "turns": []}
    assert found["3.3"]["trace"]["heard"] == "<3.0> <3.1> <3.2>"


def test_conversations_go_side_by_side() -> None:
    """None waits for another's turn, though those of one never overlap."""
    running: set[str] = set()
    most = 0

    async def watched(question: Question, ctx: Context) -> Answer:
        nonlocal most
        assert question.conversation not in running
        running.add(str(question.conversation))
        most = max(most, len(running))
        await asyncio.sleep(0.01)
        running.remove(str(question.conversation))
        return Answer("x")

    asked = (Question(f"{c}.{t}", "?", f"c{c}") for c in range(6) for t in range(5))
    kept: list[Record] = []
    asyncio.run(answer_all(asked, watched, None, open_llm("instant"), kept.append, 6))
    assert most == 6 and [record.id for record in kept] == [f"{c}.{t}" for c in range(6) for t in range(5)]


@pytest.mark.guarantee("G1")
def test_from_the_folder_as_it_is_at_any_moment(tmp_path: Path) -> None:
    """A killed run continues, even in the middle of a conversation, and asks nothing twice."""

    def copy(given: int) -> None:
        shutil.copytree(tmp_path / "run", tmp_path / f"killed-{given}")

    whole = Watched(moody, copy)
    go(tmp_path / "run", chatting, whole, conversations(), concurrency=2)
    for given in range(whole.given):
        folder = tmp_path / f"killed-{given}"
        resumed = Watched(moody)
        go(folder, chatting, resumed, conversations(), concurrency=2)
        assert answers(folder) == answers(tmp_path / "run")
        assert resumed.asked <= whole.asked and resumed.given <= whole.given - given + 2


@pytest.mark.parametrize("lines", range(sum(max(length, 1) for length in LENGTHS) + 1))
def test_from_any_number_of_answers(tmp_path: Path, lines: int) -> None:
    whole = Watched(moody)
    go(tmp_path, chatting, whole, conversations())
    written = answers(tmp_path)
    (tmp_path / "answers.jsonl").write_bytes(b"".join(written.splitlines(keepends=True)[:lines]))
    resumed = Watched(moody)
    go(tmp_path, chatting, resumed, conversations())
    assert answers(tmp_path) == written and resumed.given == 0


def test_a_failed_turn_is_tried_again_and_changes_what_follows(tmp_path: Path) -> None:
    lucky = False

    def reply(request: Any) -> Any:
        last = request.messages[-1].content.split()[-1]
        return CallError("no luck") if last == "3.1" and not lucky else {"answer": f"<{last}>"}

    go(tmp_path, chatting, Watched(reply), conversations())
    lucky = True
    go(tmp_path, chatting, again := Watched(reply), conversations(), retry_failed=True)
    assert {r["id"]: r for r in records(tmp_path)}["3.3"]["trace"]["heard"] == "<3.0> <3.1> <3.2>"
    assert again.given == 3  # the turn itself, and those that hear it; 3.0 and the rest are from the journal


def test_answers_that_wait_hold_back_admission_but_no_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long conversation continues while everything that came later waits for it to be written."""
    monkeypatch.setattr(run, "_AHEAD", 4)
    admitted = 0

    async def slow_first(question: Question, ctx: Context) -> Answer:
        nonlocal admitted
        admitted += not ctx.past
        if question.conversation == "first":
            await asyncio.sleep(0.02)
            assert admitted <= 8
        return Answer("x")

    def asked() -> Iterator[Question]:
        yield from (Question(f"first-{t}", "?", "first") for t in range(10))
        yield from (Question(f"{c}.{t}", "?", f"c{c}") for c in range(50) for t in range(2))

    kept: list[Record] = []
    answering = answer_all(asked(), slow_first, None, open_llm("instant"), kept.append, 2)
    asyncio.run(asyncio.wait_for(answering, 30))
    assert [record.id for record in kept] == [question.id for question in asked()]


@pytest.mark.guarantee("G6")
@pytest.mark.parametrize("concurrency", [1, 2, 64])
def test_a_stop_is_heard_between_turns(tmp_path: Path, concurrency: int) -> None:
    """And what a run that was stopped, or has spent its tokens, leaves can be resumed."""
    whole = Watched(moody)
    go(tmp_path / "whole", chatting, whole, conversations())
    stop = asyncio.Event()

    def watch(given: int) -> None:
        if given == 4:
            stop.set()

    stopped = Watched(moody, watch)
    go(tmp_path / "run", chatting, stopped, conversations(), concurrency=concurrency, stop=stop)
    assert stopped.given < whole.given
    spent = Watched(moody)
    with pytest.raises(RunError, match="reached its limit of 1 token "):
        go(tmp_path / "run", chatting, spent, conversations(), concurrency=1, budget=Budget(run_tokens=1))
    go(tmp_path / "run", chatting, Watched(moody), conversations())
    assert answers(tmp_path / "run") == answers(tmp_path / "whole")


def test_a_stop_wakes_who_waits_behind_a_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_AHEAD", 4)
    stop = asyncio.Event()

    async def slow_first(question: Question, ctx: Context) -> Answer:
        if question.conversation == "first":
            await asyncio.sleep(0.05)
            stop.set()
        return Answer("x")

    asked = [Question(f"first-{t}", "?", "first") for t in range(3)] + [Question(str(n), "?") for n in range(50)]
    kept: list[Record] = []
    answering = answer_all(iter(asked), slow_first, None, open_llm("instant"), kept.append, 2, stop=stop)
    asyncio.run(asyncio.wait_for(answering, 30))
    assert "first-0" in {record.id for record in kept} and "first-1" not in {record.id for record in kept}


GOOD: dict[str, Any] = {"id": "c", "turns": [{"id": "t", "question": "Who?", "answers": ["me", "I"]}]}
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no id": ({"id": 3.5, "turns": GOOD["turns"]}, "line 2: expected an `id`"),
    "no list": ({**GOOD, "turns": {}}, "line 2: `turns`"),
    "no turn": ({**GOOD, "turns": []}, "line 2: `turns`"),
    "no object": ({"id": "d", "turns": [{"id": "u", "question": "?"}, "x"]}, "line 2, turn 2: not a JSON object"),
    "no question": ({**GOOD, "turns": [{"id": "u"}]}, "line 2, turn 1: expected a `question`"),
    "no answers": ({**GOOD, "turns": [{"id": "u", "question": "?", "answers": [{}]}]}, "turn 1: `answers`"),
    "a turn twice": ({**GOOD, "id": "d"}, "turn 1: the id 't' occurs twice"),
    "a conversation twice": ({"id": "c", "turns": [{"id": "u", "question": "?"}]}, "'c' occurs twice"),
}


@pytest.mark.parametrize(("line", "message"), BAD.values(), ids=BAD)
def test_a_bad_conversation_is_named(tmp_path: Path, line: dict[str, Any], message: str) -> None:
    path = tmp_path / "q"
    path.write_bytes(orjson.dumps(GOOD) + b"\n" + orjson.dumps(line))
    with pytest.raises(InputError) as error:
        questions_in(path)
    assert message in str(error.value) and str(error.value).startswith(f"{path}, line 2")


def test_what_is_read(tmp_path: Path) -> None:
    (tmp_path / "q").write_bytes(orjson.dumps(GOOD))
    assert list(read_questions(tmp_path / "q")) == [Question("t", "Who?", "c", ("me", "I"))]
    digests = set()
    for changed in ({}, {"question": "When?"}, {"answers": []}, {"id": "u"}):
        (tmp_path / "q").write_bytes(orjson.dumps({**GOOD, "turns": [{**GOOD["turns"][0], **changed}]}))
        found = questions_in(tmp_path / "q")
        digests.add((found.count, found.digest))
    assert len(digests) == 4 and {count for count, _ in digests} == {1}


def test_conversations_of_the_benchmark(data: Path) -> None:
    path = data / "convmix" / "conversations.jsonl"
    assert questions_in(path).count == 3685
    assert len({question.conversation for question in read_questions(path)}) == 638
