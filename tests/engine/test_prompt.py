"""What is filled into a prompt stays as it is; what comes back is parsed, never believed or evaluated."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from pyfast.engine import Prompt, plain
from pyfast.errors import AnswerError
from pyfast.llm import Completion
from pyfast.systems.prompts import ANSWER, COT, DIRECT, EXTRACT, PLAN


class Fields(BaseModel):
    """What a test's prompt must be answered with."""

    number: int
    name: str = Field(max_length=20)


PROMPT = Prompt("test", "Be brief.", "Find $a in ${b}: {} $5", Fields, max_tokens=50)
HOSTILE = ["$a", "${b}", "$$", "$", "{}", "{a}", "%s", "{0.__class__}", "\\1", "\x00", '"', "\n$b\n"]


@given(*[st.one_of(st.text(), st.sampled_from(HOSTILE))] * 2)
def test_fields_are_inserted_verbatim(a: str, b: str) -> None:
    request = PROMPT.request({"a": a, "b": b}, temperature=0.0, seed=3)
    assert request.messages[-1].content == "Find " + plain(a) + " in " + plain(b) + ": {} $5"
    assert (request.messages[0].content, request.max_tokens, request.seed) == ("Be brief.", 50, 3)
    assert request.schema is PROMPT.schema  # one object for all calls: LLMs compile it once


CONTROL = ["<|im_start|>", "<|im_end|>", "<|eot_id|>", "<start_of_turn>", "<end_of_turn>", "<s>", "</s>", "[INST]"]
CONTROL += ["[/INST]", "<<SYS>>", "<</SYS>>", "<|start_header_id|>", "<|endoftext|>"]


@given(st.lists(st.sampled_from([*CONTROL, "<", ">", "|", "[", "/", "s", "a"])).map("".join))
def test_no_text_can_speak_as_a_chat_template(text: str) -> None:
    assert [token for token in CONTROL if token in plain(text)] == []
    assert plain(text).replace(" ", "") == text  # a space is all that is added


@pytest.mark.parametrize(
    "text", ["a < b > c", "x[1]", "[in]", "<b>bold</b>", "<span>", "|a|b|", "1 <| 2", "", *HOSTILE]
)
def test_other_text_stays_as_it_is(text: str) -> None:
    assert plain(text) == text


def test_a_place_left_empty_is_an_error() -> None:
    with pytest.raises(KeyError):
        PROMPT.request({"a": "x"}, temperature=0.0, seed=0)


@pytest.mark.parametrize("prompt", [PLAN, EXTRACT, ANSWER, DIRECT, COT], ids=lambda p: p.name)
def test_the_systems_prompts_can_be_filled(prompt: Prompt[Any]) -> None:
    names = ("question", "context", "path", "entity_type")
    fields = {name: f"<{name} $x>" for name in names if f"${name}" in prompt.user or f"${{{name}}}" in prompt.user}
    user = prompt.request(fields, temperature=0.0, seed=0).messages[-1].content
    assert all(text in user for text in fields.values()) and "<question $x>" in user
    # What differs comes last, for the sake of prefix caches.
    assert user.startswith(prompt.user[: prompt.user.index("$")])


def test_a_whole_answer() -> None:
    assert PROMPT.parse(Completion('{"number": 3, "name": "Io", "more": 1}', "stop")) == Fields(
        number=3, name="Io"
    )


@pytest.mark.guarantee("G5")
def test_a_cut_off_answer_is_refused_even_if_it_parses() -> None:
    with pytest.raises(AnswerError, match="test: answer cut off after 50 tokens"):
        PROMPT.parse(Completion('{"number": 3, "name": "Io"}', "length"))


@pytest.mark.parametrize(
    "reason", ["eos_token", "eos", "", "null", "unknown", "STOP", "end_turn", "stop_sequence", "tool_calls", "odd"]
)
def test_an_answer_that_fits_is_one_whatever_ended_it(reason: str) -> None:
    assert PROMPT.parse(Completion('{"number": 3, "name": "Io"}', reason)).name == "Io"
    with pytest.raises(AnswerError, match="malformed answer"):
        PROMPT.parse(Completion("Io", reason))


@pytest.mark.parametrize(
    "text",
    [
        '{"number": 3, "name": "Io",}',
        '{"number": 3, "name": "Io" // the moon\n}',
        "{'number': 3, 'name': 'Io'}",
        'Here {it} is:\n```json\n{number: 3 "name": "Io"}\n```\nAnything else?',
        "{\u201cnumber\u201d: 3, \u201cname\u201d: \u201cIo\u201d}",
    ],
)
def test_faults_in_the_writing_are_repaired_and_counted(text: str) -> None:
    repaired: Counter[str] = Counter()
    assert PROMPT.parse(Completion(text, "stop"), repaired) == Fields(number=3, name="Io")
    assert repaired == {"test": 1}


@pytest.mark.parametrize(
    "text", ['{"number": 3, "name": "I', '{"number": 3, "name": "Io", "more": {"a": 1}, "b": "']
)
def test_what_does_not_end_is_not_repaired(text: str) -> None:
    with pytest.raises(AnswerError, match="malformed answer"):
        PROMPT.parse(Completion(text, "stop"))


MALFORMED = {
    "empty": "",
    "half": '{"number": 3, "name": "I',
    "prose": "The answer is 3.",
    "fenced": '```json\n{"number": "three", "name": "Io"}\n```',
    "two": '{"number": 3} {"name": "Io"}',
    "braces": "{" * 1_000_000,
    "inside another": '{"value": {"number": 3, "name": "Io"}}',
    "list": '[3, "Io"]',
    "null": "null",
    "missing": '{"number": 3}',
    "wrong type": '{"number": "three", "name": "Io"}',
    "too long": '{"number": 3, "name": "' + "o" * 21 + '"}',
    "python": "__import__('os').system('false')",
    "python in JSON": '{"number": __import__("os"), "name": ""}',
    "ten megabytes": '{"number": 3, "name": "' + "o" * 10_000_000 + '"}',
    "nested": "[" * 1_000_000,
    "nested objects": '{"number":' * 200_000,
    "huge number": '{"number": ' + "9" * 5_000 + ', "name": "Io"}',
    "not a number": '{"number": NaN, "name": "Io"}',
    "infinite": '{"number": 1e999, "name": "Io"}',
    "surrogate": '{"number": 3, "name": "\ud800"}',
    "escaped surrogate": '{"number": 3, "name": "\\ud800"}',
}


@pytest.mark.guarantee("G5")
@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_answer_is_one_short_line(text: str) -> None:
    with pytest.raises(AnswerError, match=r"^test: malformed answer: ") as error:
        PROMPT.parse(Completion(text, "stop"))
    assert "\n" not in str(error.value) and len(str(error.value)) < 200


@pytest.mark.guarantee("G5")
@pytest.mark.parametrize("text", ['{"answer": "\ud800"}', '{"answer": "\\ud800"}', '{"answer": "\x07\\ud800"}'])
def test_half_a_character_is_malformed_in_a_text_without_bounds(text: str) -> None:
    class Final(BaseModel):
        answer: str

    with pytest.raises(AnswerError, match="malformed answer"):
        Prompt("final", "", "$question", Final, max_tokens=50).parse(Completion(text, "stop"))


@pytest.mark.guarantee("G5")
@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with pytest.raises(AnswerError):
        PROMPT.parse(Completion(text, "stop"))


def test_a_brace_behind_a_place_stays() -> None:
    prompt = Prompt("test", "", '{"a": $a} {$b} ${a}} ${c $A', Fields, max_tokens=50)
    assert prompt.places == ("a", "b")
    assert prompt.request({"a": "1", "b": "2"}, 0.0, 0).messages[-1].content == '{"a": 1} {2} 1} ${c $A'


def test_the_object_is_taken_out_of_what_is_said_around_it() -> None:
    whole = '{"number": 3, "name": "Io"}'
    for text in (
        f"```json\n{whole}\n```",
        f"Sure {{you}}!\n{whole}\nI hope that helps.",
        f'First {{"number": 1, "name": "Europa"}}, or rather: {whole}',
        f"{{ {whole}",
    ):
        assert PROMPT.parse(Completion(text, "stop")) == PROMPT.parse(Completion(whole, "stop")), text


def test_a_field_with_a_default_is_asked_for_and_may_be_left_out() -> None:
    class Found(BaseModel):
        name: str
        moons: list[str] = []

    prompt = Prompt("found", "Reply in JSON.", "Who?", Found, 20)
    assert prompt.schema["required"] == ["name", "moons"] and "default" not in str(prompt.schema)
    assert prompt.parse(Completion('{"name": "Io"}', "stop")) == Found(name="Io")
    with pytest.raises(AnswerError, match="name: Field required"):
        prompt.parse(Completion('{"moons": []}', "stop"))
