from pydantic import BaseModel

from pyfast.llm import Completion, Message, Request, dialogue
from pyfast.llm.chat import closed, error_field, error_text, request_fields
from pyfast.llm.reply_cleaning import cut_at


def test_objects_are_closed_wherever_they_are() -> None:
    class Hop(BaseModel):
        query: str
        properties: dict[str, int]  # a field with the name of a keyword

    class Plan(BaseModel):
        hops: list[Hop]
        last: Hop | None

    schema = Plan.model_json_schema()
    before = repr(schema)
    result = closed(schema)
    assert repr(schema) == before, "the caller's schema is left alone"
    assert result["additionalProperties"] is False
    hop = result["$defs"]["Hop"]
    assert hop["additionalProperties"] is False
    assert set(hop["properties"]) == {"query", "properties"}
    assert hop["properties"]["properties"]["additionalProperties"] == {"type": "integer"}
    inline = closed({"anyOf": [{"items": {"properties": {}}}, True]})
    assert inline == {"anyOf": [{"items": {"properties": {}, "additionalProperties": False}}, True]}


def test_error_bodies() -> None:
    assert error_text(b'{"error": {"message": "too\\nlong", "code": 400}}') == "too long"
    assert error_text(b'{"error": "busy"}') == "busy"
    assert error_text(b'{"detail": [1]}') == "{'detail': [1]}"
    assert error_text(b"") == "no explanation"
    assert error_text(b"\xff" * 5000) == "\ufffd" * 300


def test_fields_of_error_bodies() -> None:
    assert error_field(b'{"error": {"param": "seed", "code": 400}}', "param") == "seed"
    bodies = (
        b'{"error": {"param": 7}}',
        b'{"error": {}}',
        b'{"error": "busy"}',
        b"{}",
        b"[]",
        b"null",
        b"<html>",
        b"",
    )
    assert {error_field(body, "param") for body in bodies} == {""}


def test_a_request_that_continues_a_text() -> None:
    """The fields of vLLM and SGLang for it; llama.cpp needs none. No other request has them."""
    begun = (*dialogue("Who?"), Message("assistant", "It was"))
    fields = request_fields(Request(begun, 9, stop=("</a>",)), {})
    assert fields["stop"] == ["</a>"] and not fields["add_generation_prompt"] and fields["continue_final_message"]
    usual = request_fields(Request(begun[:1], 9), {})
    assert usual.keys() == {"messages", "max_tokens", "temperature", "seed"}
    digests = {Request(begun, 9, stop=stop).digest() for stop in ((), ("a",), ("a", "b"), ("ab",))}
    assert len(digests) == 4


def test_what_follows_a_mark_is_cut_off() -> None:
    text = "<think>one</think><search>two</search>three</answer>"
    assert cut_at(Completion(text, "length"), ("</answer>", "</search>")).text == "<think>one</think><search>two"
    assert cut_at(Completion(text, "length"), ("no",)) == Completion(text, "length")
