"""Absurd replies: control characters, counts of tokens that cannot be, prompts that fit no window."""

import asyncio
import json
import logging
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs import Watched, ask_about, direct, go, records
from servers import ASK, body, http, replying, serving, speaking

from pyfast.engine import Question
from pyfast.errors import AnswerError, CallError
from pyfast.llm import Completion, Request, dialogue
from pyfast.llm.reply_cleaning import json_without_controls, without_controls, without_controls_in

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
SAID = {
    "\x1b[31mred\x1b[0m": "red",
    "\x1b]0;a title\x07text": "text",
    "\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\": "link",
    "\x9b2Jgone": "gone",
    "\x1bc\x1b(Btext": "text",
    "a\x00b\x08c\x7fd\x85e": "abcde",
    "one\r\ntwo\rthree\ttab": "one\ntwo\nthree\ttab",
    "\u202edesrever\u202c": "desrever",
    "naïve 日本 \u200fעברית é": "naïve 日本 \u200fעברית é",
    "\x1b\x1b[31mred\x1b": "red",
}


@pytest.mark.parametrize("said", SAID)
def test_what_a_terminal_obeys_goes(said: str) -> None:
    assert without_controls(said) == SAID[said]


@given(st.text())
def test_no_control_character_is_left(text: str) -> None:
    left = without_controls(text)
    assert not CONTROL.search(left) and without_controls(left) == left
    if text.isprintable():
        assert left == text


def test_half_a_character_is_replaced() -> None:
    """An LLM written in Python can return one. A whole pair is a character."""
    reply = without_controls_in(Completion("a\ud83d\ude00\x07b\ud800", "st\udc00op"))
    assert (reply.text, reply.finish_reason) == ("a😀b\ufffd", "st\ufffdop")


@given(
    st.recursive(st.text() | st.integers() | st.none(), lambda it: st.lists(it) | st.dictionaries(st.text(), it))
)
def test_none_is_left_in_json(value: object) -> None:
    for escaped in (True, False):
        left = json.loads(json_without_controls(json.dumps(value, ensure_ascii=escaped)))
        assert not any(CONTROL.search(text) for text in _texts(left))


def _texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.items() for text in (item[0], *_texts(item[1]))]
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    return [value] if isinstance(value, str) else []


async def test_nothing_of_a_server_is_obeyed() -> None:
    replies = [
        http(body("Pa\x1b[31mris\x00\u202e")),
        http({**body("Paris"), "choices": [{"message": {"content": "x"}, "finish_reason": "st\x1b[2Jop"}]}),
        http({"error": {"message": "\x1b]0;owned\x07no \x9b2Jroom\x08"}}, status="413 No"),
        http(b"<html>\x1b[2J\x00", status="400 No"),
        http({"choices": [{"message": {"refusal": "I \x1b[5mwill not"}}]}),
        http(b"\x1b[2Jno JSON"),
        http(body("Paris")),
    ]

    async def speak(writer: asyncio.StreamWriter, asked: int) -> None:
        writer.write(replies[asked - 1])

    async with speaking(speak) as backend:
        assert (await backend.complete(ASK)).text == "Paris"
        assert (await backend.complete(ASK)).finish_reason == "stop"
        for expected in ("413: no room", "<html>", "I will not"):
            with pytest.raises(CallError, match=expected) as error:
                await backend.complete(ASK)
            assert str(error.value).isprintable()
        assert (await backend.complete(ASK)).text == "Paris"


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ('{"answer": "\\u001b[31mred\\u001b[0m \\u009b2J\\u202eBob\\b\\f"}', "red Bob"),
        ('{"answer": "\\u001B]0;title\\u0007red"}', "red"),
        ('{"answer": "a\\u2069\\u0000b"}', "ab"),
        ('{"answer": "a\\r\\nb\\tc \\u00e9 \\\\u001b \\\\begin"}', "a\nb\tc é \\u001b \\begin"),
    ],
)
def test_no_control_character_of_a_model_reaches_the_answers(reply: str, answer: str, tmp_path: Path) -> None:
    go(tmp_path, direct, Watched(lambda _: reply), ask_about(1))
    (record,) = records(tmp_path)
    assert (record["state"], record["answer"]) == ("answered", answer)
    assert not CONTROL.search(repr(record))


def test_nor_one_of_its_errors(tmp_path: Path) -> None:
    go(tmp_path, direct, Watched(lambda _: AnswerError("no \x1b[2Jroom\x00")), ask_about(1))
    assert records(tmp_path)[0]["reason"] == "no room"


# --- counts


async def test_counts_are_bound_by_what_was_sent_and_received(caplog: pytest.LogCaptureFixture) -> None:
    handler, asked = replying(
        body("Paris", prompt_tokens=12, completion_tokens=3),
        body(
            "Paris",
            prompt_tokens=30_000_000_000,
            completion_tokens=1 << 62,
            prompt_tokens_details={"cached_tokens": 1 << 40},
        ),
        body("x" * 1000, prompt_tokens=1 << 31, completion_tokens=1 << 31),
    )
    with caplog.at_level(logging.WARNING, "pyfast"):
        async with serving(handler) as backend:
            honest = await backend.complete(ASK)
            assert (honest.prompt_tokens, honest.completion_tokens) == (12, 3) and not caplog.records
            absurd = await backend.complete(ASK)
            longer = await backend.complete(ASK)
    sent = len(json.dumps(asked[0]))
    assert 0 < absurd.cached_tokens <= absurd.prompt_tokens <= sent + 4096
    assert absurd.completion_tokens == ASK.max_tokens  # of thoughts that are not shown there may be so many
    assert longer.completion_tokens == 1000 and longer.prompt_tokens == absurd.prompt_tokens
    assert [record.message for record in caplog.records if "which is impossible" in record.message] == [
        caplog.records[0].message
    ]


# --- prompts


def test_a_question_of_50_mb_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    llm = Watched(context_window=1_000_000)
    huge = Question("huge", "Who keeps the lighthouse? " * 2_000_000)
    go(tmp_path, direct, llm, [*ask_about(2), huge, *ask_about(4)[2:]])
    by_id = {record["id"]: record for record in records(tmp_path)}
    assert {name for name, record in by_id.items() if record["state"] == "failed"} == {"huge"}
    assert re.fullmatch(
        r"a prompt of 52,000,\d{3} characters was not sent: the context window has 1,000,000 tokens .*",
        by_id["huge"]["reason"],
    )
    assert sum(llm.asked.values()) == 4  # it was asked of nobody, once or twice


async def test_a_prompt_that_may_fit_is_sent() -> None:
    handler, asked = replying(body())
    async with serving(handler, context_window=1000) as backend:
        assert isinstance(await backend.complete(Request(dialogue("word " * 4000), 9)), Completion)
    assert len(asked) == 1
