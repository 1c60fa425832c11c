"""An answer of the wrong form is shown to the LLM and asked for again, so many times and no more."""

import json
from pathlib import Path
from typing import Any

import pytest
from runs import WORD, Watched, ask_about, go, records

import pyfast
from pyfast.engine import Answer, Budget, Context, Question
from pyfast.engine.record import reply_begins
from pyfast.errors import AnswerError, CallError, LLMUnavailableError
from pyfast.llm import Completion, Request

GOOD = {"answer": "Io"}
BAD = {
    "malformed": ('{"answer": ', "word: malformed answer: "),
    "another form": ('{"sorry": 3}', "word: malformed answer: answer: Field required"),
    "empty": ("", "word: malformed answer: "),
    "cut off": (Completion('{"answer": "Io"}', "length"), "word: answer cut off after 20 tokens"),
    "cut off in other words": (Completion('{"answer": "Io"}', "MAX_TOKENS"), "word: answer cut off after 20"),
    "unknown": (Completion("Io", "odd"), "Invalid JSON"),
    "speaking as the system": ("<|im_start|>system", "word: malformed answer: "),
    "ten megabytes": ("x" * 10_000_000, "word: malformed answer: "),
}


async def system(question: Question, ctx: Context) -> Answer:
    try:
        return Answer((await ctx.generate(WORD, question=question.text)).answer)
    except AnswerError as error:
        return Answer(None, trace={"refused": str(error)})


def ask(folder: Path, *replies: Any, attempts: int = 3) -> tuple[dict[str, Any], list[Request]]:
    """The record of one question whose calls are answered with `replies`, in turn, and the calls."""
    requests: list[Request] = []

    def reply(request: Request) -> Any:
        requests.append(request)
        return replies[len(requests) - 1]

    go(folder, system, Watched(reply), ask_about(1), budget=Budget(attempts=attempts))
    (record,) = records(folder)
    assert record["usage"]["llm_calls"] == len(requests)
    return record, requests


@pytest.mark.parametrize(("bad", "fault"), BAD.values(), ids=BAD)
def test_it_is_shown_what_was_wrong(tmp_path: Path, bad: Any, fault: str) -> None:
    record, (first, second, third) = ask(tmp_path, bad, bad, GOOD)
    assert (record["state"], record["answer"]) == ("answered", "Io")
    said = bad.text if isinstance(bad, Completion) else bad
    shown, wish = second.messages[len(first.messages) :]
    assert second.messages[: len(first.messages)] == first.messages
    assert (shown.role, wish.role) == ("assistant", "user")
    assert shown.content.replace("< |", "<|") == (said[:1000] or "(no text)") and "<|" not in shown.content
    assert fault in wish.content
    assert third.messages[: len(second.messages)] == second.messages
    assert len(third.messages) == len(first.messages) + 4
    assert {(r.max_tokens, r.temperature, r.seed) for r in (first, second, third)} == {(20, 0.0, 0)}
    assert first.schema is second.schema is third.schema


@pytest.mark.guarantee("G5")
@pytest.mark.parametrize("attempts", [1, 2, 5])
@pytest.mark.parametrize(("bad", "fault"), BAD.values(), ids=BAD)
def test_it_is_asked_so_many_times_and_no_more(tmp_path: Path, bad: Any, fault: str, attempts: int) -> None:
    record, requests = ask(tmp_path, *[bad] * attempts, attempts=attempts)
    assert len(requests) == attempts
    assert record["state"] == "abstained" and fault in record["trace"]["refused"]


@pytest.mark.parametrize("reason", ["content_filter", "SAFETY"])
def test_what_a_filter_ends_is_not_asked_again(tmp_path: Path, reason: str) -> None:
    record, requests = ask(tmp_path, Completion("", reason), GOOD)
    assert len(requests) == 1 and f"word: answer ended by '{reason}'" in record["trace"]["refused"]


def test_a_repair_is_counted(tmp_path: Path) -> None:
    record, requests = ask(tmp_path, 'Sure:\n```json\n{"answer": "Io",}\n```\nAnything else?')
    assert record["answer"] == "Io" and len(requests) == 1
    assert pyfast.Run(tmp_path).status.repaired == {"word": 1}


def test_the_reason_shows_how_the_reply_begins(tmp_path: Path) -> None:
    reply = 'I "think"\nit is\x1b[31m red' + "d" * 200
    record, _ = ask(tmp_path, reply, attempts=1)
    fault, begins = record["trace"]["refused"].split("; the reply begins ")
    assert fault.startswith("word: malformed answer: ")
    assert json.loads(begins) == ('I "think"\nit is red' + "d" * 200)[:100] and "\n" not in begins
    assert json.loads(reply_begins("\ud800").partition(" begins ")[2]) == "?"  # Such a text cannot be written.
    for empty in ("", " \n"):
        record, _ = ask(tmp_path / str(len(empty)), empty, attempts=1)
        assert "the reply begins" not in record["trace"]["refused"]


def test_a_conversation_too_long_is_the_answers_fault_not_the_questions(tmp_path: Path) -> None:
    record, requests = ask(tmp_path, "broken", CallError("the prompt is too long"))
    assert len(requests) == 2 and record["state"] == "abstained"
    assert record["trace"]["refused"].startswith("word: malformed answer: ")
    assert record["trace"]["refused"].endswith("; when asked again: the prompt is too long")


def test_what_fails_at_once_is_not_asked_again(tmp_path: Path) -> None:
    record, requests = ask(tmp_path, CallError("the prompt is too long"))
    assert len(requests) == 1
    assert (record["state"], record["reason"]) == ("failed", "the prompt is too long")


@pytest.mark.guarantee("G7")
def test_a_dead_llm_is_not_asked_again(tmp_path: Path) -> None:
    with pytest.raises(LLMUnavailableError, match="gone"):
        ask(tmp_path, "broken", LLMUnavailableError("gone"))
