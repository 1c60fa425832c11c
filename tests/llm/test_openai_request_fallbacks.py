"""Against servers that do not take the whole request, each in the way of a real one."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from pydantic import BaseModel, Field
from servers import ASK, Handler, body, serving

from pyfast.errors import CallError
from pyfast.llm import LLM, Request, dialogue, open_llm
from pyfast.llm.request_fallbacks import strict


@asynccontextmanager
async def open_backend(port: int | None, **options: Any) -> AsyncIterator[LLM]:
    backend = open_llm(f"openai:m@http://127.0.0.1:{port}", **options)
    await backend.start()
    yield backend
    await backend.close()


Judge = Callable[[dict[str, Any]], dict[str, Any] | None]


class Place(BaseModel):
    name: str = Field(max_length=30, pattern="^[A-Z]")
    kind: Literal["city", "country"] = "city"


class Plan(BaseModel):
    hops: int = Field(ge=1, le=3)
    query: Annotated[str, Field(min_length=1, description="a search", examples=["x"])]
    places: list[Place] = Field(default=[], max_length=2)
    main: Place | None = None


PLAN = Request(ASK.messages, 16, Plan.model_json_schema())


def judging(judge: Judge, status: int = 400) -> tuple[Handler, list[dict[str, Any]]]:
    """A handler that refuses what the judge has a complaint about, and all that it was asked."""
    asked: list[dict[str, Any]] = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(orjson.loads(await request.read()))
        complaint = judge(asked[-1])
        return web.json_response(complaint or body(), status=status if complaint else 200)

    return handler, asked


def openai_error(message: str, parameter: str | None, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": parameter, "code": code}}


def faults(node: Any) -> list[str]:
    """What OpenAI's documentation says that the strict mode refuses, for models of any age."""
    if isinstance(node, list):
        return [fault for part in node for fault in faults(part)]
    if not isinstance(node, dict):
        return []
    known = {"type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "const"}
    known |= {"$ref", "$defs", "title", "description"}
    found = [f"'{key}' is not permitted." for key in node if key not in known]
    if "$ref" in node and len(node) > 1:
        found.append("$ref cannot have keywords beside it.")
    if node.get("type") == "object":
        if node.get("additionalProperties") is not False:
            found.append("'additionalProperties' is required to be supplied and to be false.")
        if set(node.get("required", ())) != set(node["properties"]):
            found.append("'required' is required to be an array including every key in properties.")
    for key in ("properties", "$defs"):
        found += faults(list(node.get(key, {}).values()))
    return found + faults(node.get("items")) + faults(node.get("anyOf"))


def openai(asked: dict[str, Any]) -> dict[str, Any] | None:
    """A model of the newest kind behind the strict mode."""
    if "max_tokens" in asked:
        message = (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'"
        )
        return openai_error(f"{message} instead.", "max_tokens", "unsupported_parameter")
    if asked.get("temperature", 1) != 1:
        message = (
            "Unsupported value: 'temperature' does not support 0.0 with this model. Only the default (1) value"
        )
        return openai_error(f"{message} is supported.", "temperature", "unsupported_value")
    if "response_format" in asked:
        found = faults(asked["response_format"]["json_schema"]["schema"])
        if found:
            message = f"Invalid schema for response_format 'Plan': In context=(), {found[0]}"
            return openai_error(message, "response_format")
    return None


def knows_no_format(asked: dict[str, Any]) -> dict[str, Any] | None:
    return {"error": "unknown field response_format"} if "response_format" in asked else None


def any_json_only(asked: dict[str, Any]) -> dict[str, Any] | None:
    if asked.get("response_format", {}).get("type") == "json_schema":
        return openai_error("This response_format type is unavailable now", None, "invalid_request_error")
    return None


def knows_no_seed(asked: dict[str, Any]) -> dict[str, Any] | None:
    if "seed" in asked:
        fault = {"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}
        return {"object": "error", "message": {"detail": [{**fault, "input": 0}]}}
    return None


def positive_temperature(asked: dict[str, Any]) -> dict[str, Any] | None:
    if asked.get("temperature") == 0:
        return {"error": "Input validation error: `temperature` must be strictly positive"}
    return None


@pytest.mark.parametrize(
    ("judge", "status", "refused", "changed"),
    [
        (openai, 400, 3, {"max_tokens", "max_completion_tokens", "temperature", "response_format"}),
        (knows_no_format, 400, 3, {"response_format", "messages"}),
        (any_json_only, 400, 2, {"response_format", "messages"}),
        (knows_no_seed, 422, 1, {"seed"}),
        (positive_temperature, 422, 1, {"temperature"}),
    ],
)
async def test_what_a_server_refuses_is_learnt_once(
    judge: Judge, status: int, refused: int, changed: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    handler, asked = judging(judge, status)
    async with serving(handler) as backend:
        for _ in range(3):
            assert (await backend.complete(PLAN)).text == "Paris"
    assert len(asked) == refused + 3
    whole, last = asked[0], asked[-1]
    assert {name for name in whole | last if whole.get(name) != last.get(name)} == changed
    assert last == asked[-3] and judge(last) is None
    told = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(told) == 1, "one line for all"


async def test_who_is_held_to_no_schema_is_shown_it() -> None:
    """In the first message, once; the conversation stays as it is."""
    handler, asked = judging(any_json_only)
    again = Request((*dialogue("Plan it.", "You plan."), *dialogue("More.")), 16, PLAN.schema)
    async with serving(handler) as backend:
        for request in (again, again, ASK):
            await backend.complete(request)
    told, same, plain = asked[-3:]
    first, *rest = told["messages"]
    start, _, shown = first["content"].rpartition("\n")
    assert first["role"] == "system" and start.startswith("You plan.\n\n") and orjson.loads(shown) == PLAN.schema
    assert [said["content"] for said in rest] == ["Plan it.", "More."] and told == same
    assert plain["messages"][-1]["content"] == ASK.messages[-1].content


async def test_calls_at_once_learn_together() -> None:
    handler, asked = judging(openai)
    requests = [PLAN, ASK] * 10
    async with serving(handler) as backend:
        await asyncio.gather(*(backend.complete(request) for request in requests))
        first = len(asked)
        await asyncio.gather(*(backend.complete(request) for request in requests))
    assert len(asked) == first + len(requests)
    assert first <= len(requests) * 4


async def test_a_complaint_about_one_request_changes_no_other() -> None:
    def judge(asked: dict[str, Any]) -> dict[str, Any] | None:
        said = asked["messages"][-1]["content"]
        if said == "long":
            message = "'max_tokens' is too large: 99. This model's maximum context length is 64 tokens"
            return openai_error(message, "max_tokens")
        return openai_error("the prompt quotes a JSON schema", None) if said.startswith("odd") else None

    handler, asked = judging(judge)
    async with serving(handler) as backend:
        await backend.complete(PLAN)
        with pytest.raises(CallError, match="maximum context length"):
            await backend.complete(Request(dialogue("long"), 99, PLAN.schema))
        assert len(asked) == 2
        with pytest.raises(CallError, match="quotes a JSON schema"):
            await backend.complete(Request(dialogue("odd"), 9, PLAN.schema))
        assert len(asked) == 2 + 4, "in vain with less and less of the schema"
        await backend.complete(PLAN)
    assert asked[-1].keys() == asked[0].keys() and asked[-1]["response_format"] == asked[0]["response_format"]


def test_the_strict_schema() -> None:
    """Everything that fits the schema and names all its fields fits the strict one."""
    schema = Plan.model_json_schema()
    before = repr(schema)
    assert faults(schema) and not faults(strict(schema))
    assert repr(schema) == before, "the caller's schema is left alone"
    described = strict(schema)["properties"]["query"]
    assert described == {"type": "string", "description": "a search", "title": "Query"}
    assert strict(schema)["properties"]["main"]["anyOf"] == [{"$ref": "#/$defs/Place"}, {"type": "null"}]
    odd = {"properties": {"required": {"oneOf": [{"const": 1}, {"type": "null"}]}, "pattern": True}}
    assert strict(odd)["properties"] == {"required": {"anyOf": [{"const": 1}, {"type": "null"}]}, "pattern": True}


def no_system(asked: dict[str, Any]) -> dict[str, Any] | None:
    if any(message["role"] == "system" for message in asked["messages"]):
        return {"object": "error", "message": "System role not supported", "code": 400}
    return None


async def test_a_system_message_goes_before_the_first_user_message(caplog: pytest.LogCaptureFixture) -> None:
    handler, asked = judging(no_system)
    async with serving(handler) as backend:
        for request in (PLAN, PLAN, Request(dialogue("Who?"), 9)):
            assert (await backend.complete(request)).text == "Paris"
    assert len(asked) == 4 and asked[-1]["messages"] == [{"role": "user", "content": "Who?"}]
    (message,) = asked[1]["messages"]
    assert message == {"role": "user", "content": "Be brief.\n\nWhat is the capital of France?"}
    assert asked[2]["messages"] == asked[1]["messages"]
    (told,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert told.endswith("from now on, pyfast sends: the system message before the first user message")


async def test_a_server_that_has_taken_the_whole_form_is_believed_at_the_second_refusal(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refuses = False

    def judge(asked: dict[str, Any]) -> dict[str, Any] | None:
        return openai_error("no grammar now", None) if refuses and "response_format" in asked else None

    handler, asked = judging(judge)
    async with serving(handler) as backend:
        await backend.complete(PLAN)
        refuses = True
        await backend.complete(PLAN)
        refuses = False
        await backend.complete(PLAN)
        assert asked[-1] == asked[0] and not caplog.records
        refuses = True
        await backend.complete(PLAN)
        await backend.complete(PLAN)
    assert "response_format" not in asked[-1] and "response_format" not in asked[-2]
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1


async def test_another_server_at_the_same_address_is_asked_anew() -> None:
    handler, _ = judging(no_system)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", handler)
    server = TestServer(app)
    await server.start_server()
    port = server.port
    async with open_backend(port, attempts=8, backoff_s=0.05) as backend:
        await backend.complete(PLAN)
        await server.close()
        calling = asyncio.ensure_future(backend.complete(PLAN))
        await asyncio.sleep(0.2)
        replying_app = web.Application()
        whole, taken = judging(lambda _: None)
        replying_app.router.add_post("/v1/chat/completions", whole)
        second = TestServer(replying_app, port=port)
        await second.start_server()
        assert (await calling).text == "Paris"
        await backend.complete(PLAN)
        await second.close()
    assert [message["role"] for message in taken[-1]["messages"]] == ["system", "user"]
