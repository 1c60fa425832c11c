"""The chat-completions format of requests and replies, which llama.cpp and the HTTP servers use."""

from __future__ import annotations

import base64
import html
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

# orjson writes a prompt of 7 kB in 6 us, json in 35 us. In both directions, orjson also refuses text that is not
# Unicode, and nesting deep enough to exhaust the stack.
import orjson

from pyfast.errors import CallError
from pyfast.llm.protocol import Completion, Request, Schema
from pyfast.llm.reply_cleaning import share_of_reasoning, without_controls

# Some servers write NaN, or line breaks in texts.
_DECODER = json.JSONDecoder(strict=False, parse_constant=lambda _: None)
_LONGEST_PAGE = 20_000
_STATUS = re.compile(r"[45][0-9][0-9]")
_STATUS_OF = {
    **dict.fromkeys(("invalid_request_error", "invalid_prompt", "content_filter", "invalid_argument"), 400),
    **dict.fromkeys(("content_policy_violation", "context_length_exceeded"), 400),
    **dict.fromkeys(("authentication_error", "invalid_api_key", "unauthenticated"), 401),
    **dict.fromkeys(("permission_error", "permission_denied"), 403),
    **dict.fromkeys(("not_found_error", "model_not_found", "not_found"), 404),
    **dict.fromkeys(("rate_limit_error", "rate_limit_exceeded", "resource_exhausted", "insufficient_quota"), 429),
}
_NOTHING = " \t\r\n\0\ufeff"
_EVENT = re.compile(r"(?:data|event|id|retry):")
_ENDS = re.compile(rb'\[DONE\]|"finish_reason":\s*"')
_PAGE = re.compile(r"\s*<(?:!doctype|html|head|body|title|\?xml)\b", re.IGNORECASE)
_TAG = re.compile(r"<(script|style)\b.*?</\1\s*>|<[^>]*>", re.IGNORECASE | re.DOTALL)


def with_parts(schema: Schema, changed: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a copy of a node of a JSON schema, with `changed(part)` in place of each part: of each property,
    definition, alternative and kind of item."""
    node = dict(schema)
    for key in node.keys() & {"properties", "$defs", "anyOf", "oneOf", "prefixItems", "items"}:
        part = node[key]
        if key in ("properties", "$defs") and isinstance(part, Mapping):
            node[key] = {name: changed(each) for name, each in part.items()}
        else:
            node[key] = [changed(each) for each in part] if isinstance(part, list) else changed(part)
    return node


def closed(schema: Any) -> Any:
    """Return a copy of a JSON schema in which objects with `properties` may have no additional fields.

    Pydantic's schemas allow additional fields, but OpenAI's strict mode rejects such schemas, and small models
    invent additional fields. Objects inside `allOf` do not change, because closed parts would exclude one another.
    """
    if not isinstance(schema, Mapping):
        return schema
    node = with_parts(schema, closed)
    if "properties" in node:
        node.setdefault("additionalProperties", False)
    return node


CONTINUES = {"add_generation_prompt": False, "continue_final_message": True}
"""The options of a chat template for a reply that continues the text of the last message"""


def request_fields(request: Request, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the JSON body of a request, without the schema for the answer. `fields` are
    additional fields for this server.

    A prompt of embeddings is in torch's file format, for vLLM's `/completions`. Raises `CallError` if torch is
    not installed.
    """
    prompt: dict[str, Any] = {"messages": request.messages}
    if request.embeds is not None:
        prompt = {"prompt_embeds": _as_tensor(request)}
    if request.stop:
        prompt["stop"] = list(request.stop)
    if request.messages and request.messages[-1].role == "assistant":
        prompt |= CONTINUES
    sampling = {"max_tokens": request.max_tokens, "temperature": request.temperature, "seed": request.seed}
    return {**fields, **prompt, **sampling}


def _as_tensor(request: Request) -> str:
    try:
        import torch
    except ImportError:
        raise CallError(
            "a prompt that is sent as embeddings needs torch: pip install 'pyfast-qa[torch]'"
        ) from None
    file = io.BytesIO()
    torch.save(torch.tensor(np.asarray(request.embeds, np.float32, order="C")), file)
    return base64.b64encode(file.getvalue()).decode()


def as_json(body: Mapping[str, Any]) -> bytes:
    """Encode the body of a request as JSON bytes. Raises `CallError` if the prompt is not valid Unicode."""
    try:
        return orjson.dumps(body)
    except orjson.JSONEncodeError as error:
        raise CallError(f"the prompt cannot be sent as JSON: {error}") from None


def completion(text: object, finish_reason: object, usage: object, reasoning: object = None) -> Completion:
    """Create a completion from the parts of a server's reply. `usage` contains the token counts, and `reasoning`
    is the text of the model's reasoning.

    A text that is None is empty: the finish reason may say why. Raises `CallError` for any other value.
    """
    reason = finish_reason[:100] if isinstance(finish_reason, str) else "unknown"
    text = "" if text is None else text
    if not isinstance(text, str):
        raise CallError("the LLM's reply contains no text")
    counts = usage if isinstance(usage, dict) else {}
    completion_tokens = token_count(counts.get("completion_tokens"))
    reasoning_tokens = _detail(counts, "completion_tokens_details", "reasoning_tokens")
    if not reasoning_tokens and isinstance(reasoning, str):
        whole = len(reasoning) + len(text)
        reasoning_tokens = share_of_reasoning(completion_tokens, len(reasoning), whole)
    return Completion(
        text,
        reason,
        token_count(counts.get("prompt_tokens")),
        _detail(counts, "prompt_tokens_details", "cached_tokens"),
        completion_tokens,
        min(reasoning_tokens, completion_tokens),
    )


def _detail(counts: dict[str, Any], kind: str, name: str) -> int:
    details = counts.get(kind)
    return token_count(details.get(name)) if isinstance(details, dict) else 0


def token_count(value: object) -> int:
    """Return a token count from a reply, or 0 if the value is not a valid count."""
    # The limit is above any context window, so that sums fit into the database.
    return min(value, (1 << 32) - 1) if type(value) is int and value > 0 else 0


FAULTS_OF_JSON = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""The exceptions that reading a malformed body can raise"""


def reply_of(body: bytes) -> dict[str, Any]:
    """Read the JSON object in a reply's body.

    Leading lines that begin with a colon and anything after the object are ignored, and bytes that are not UTF-8
    are replaced. An event stream, which some servers send unasked, becomes one reply. Raises `ValueError` if there
    is no object.
    """
    try:
        data = orjson.loads(body)
    except ValueError:
        text = body.decode(errors="replace").lstrip(_NOTHING)
        if text[:1] == "[":  # A list is no reply, and can be nested without end.
            raise ValueError("no JSON object") from None
        while text.startswith(":"):
            text = text.partition("\n")[2].lstrip(_NOTHING)
        found = _of_stream(text) if _EVENT.match(text) else _DECODER.raw_decode(text)[0]
        # orjson refuses half a pair of surrogates, and no text may have one.
        data = orjson.loads(json.dumps(found, ensure_ascii=False).encode(errors="replace"))
    if not isinstance(data, dict):
        raise ValueError("no JSON object")
    return data


def _of_stream(text: str) -> dict[str, Any]:
    """Assemble the reply from the pieces in an event stream. If the stream contains a whole reply or an error,
    return that."""
    message: dict[str, Any] = {"content": "", "tool_calls": []}
    choice: dict[str, Any] = {"message": message}
    usage = None
    for line in text.split("\n"):  # `splitlines` would also cut at separators inside of texts
        name, _, written = line.partition(":")
        if name.strip() != "data" or written.strip() in ("", "[DONE]"):
            continue
        event = orjson.loads(written)
        usage = event.get("usage") or usage
        if event.get("error"):
            return {"error": event["error"]}
        for part in event.get("choices") or ():
            if not isinstance(part.get("delta"), dict):
                return {**event, "usage": usage}
            for field in ("content", "reasoning_content", "reasoning", "refusal"):
                if isinstance(said := part["delta"].get(field), str):
                    message[field] = message.get(field, "") + said
            for call in part["delta"].get("tool_calls") or ():
                arguments = call["function"].get("arguments") or ""
                if message["tool_calls"] and call["function"].get("name") is None:
                    message["tool_calls"][-1]["function"]["arguments"] += arguments
                else:
                    message["tool_calls"].append({"function": {"arguments": arguments}})
            choice["finish_reason"] = part.get("finish_reason") or choice.get("finish_reason")
    return {"choices": [choice], "usage": usage}


def breaks_off(body: bytes) -> bool:
    """Return whether the body of a reply is an event stream without an end."""
    return body.lstrip().startswith((b"data:", b"event:")) and _ENDS.search(body) is None


def text_reader(on_text: Callable[[str], object]) -> Callable[[bytes], None]:
    """Make a function that takes an event stream piece by piece, and calls `on_text` with the text so far."""
    text, rest = "", b""

    def take(piece: bytes) -> None:
        nonlocal text, rest
        before = len(text)
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                # `reply_of` reads the whole body later, and finds its faults.
                with suppress(*FAULTS_OF_JSON):
                    text += orjson.loads(line[5:])["choices"][0]["delta"]["content"]
        if len(text) > before:
            on_text(text)

    return take


def choice_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first choice of a reply. Raises one of `FAULTS_OF_JSON` if there is none, or an error instead."""
    choice: dict[str, Any] = data["choices"][0]
    if choice.get("error") or choice.get("finish_reason") == "error":
        raise ValueError("an error in place of a choice")
    if isinstance(choice.get("delta"), dict):
        choice = {"message": choice["delta"], **choice}
    # A filter may leave nothing but the reason.
    if not (isinstance(choice.get("message"), dict) or "text" in choice or choice.get("finish_reason")):
        raise ValueError("no text in a choice")
    return choice


def texts_of(choice: Mapping[str, Any]) -> tuple[object, object]:
    """Return (the text, the text of the reasoning) of a choice.

    The text may be in parts, an object, or the arguments of a tool call.
    """
    message = choice.get("message")
    if not isinstance(message, dict):  # A prompt of embeddings has its text here.
        return choice.get("text"), None
    text, thought = message.get("content"), message.get("reasoning_content") or message.get("reasoning")
    if isinstance(text, list):
        parts = [part if isinstance(part, dict) else {"text": part} for part in text]
        thought = thought or "".join(_texts(it for it in parts if it.get("type") in _THOUGHTS)) or None
        text = "".join(_texts(it for it in parts if it.get("type") not in _THOUGHTS))
    elif isinstance(text, dict):
        text = orjson.dumps(text).decode()
    if not text:
        calls = message.get("tool_calls") or [{"function": message.get("function_call")}]
        function = calls[0].get("function") if isinstance(calls, list) and isinstance(calls[0], dict) else None
        arguments = function.get("arguments") if isinstance(function, dict) else None
        text = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode() if arguments else text
    if not text and isinstance(thought, str) and _OBJECT.fullmatch(thought):
        text, thought = thought, None  # The server took the answer for reasoning.
    return text, thought


_OBJECT = re.compile(r"\s*\{.*\}\s*", re.DOTALL)
_THOUGHTS = ("thinking", "reasoning", "redacted_thinking")


def _texts(parts: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for part in parts:
        text = part.get("text", part.get("thinking", part.get("reasoning")))
        if isinstance(text, str):
            yield text


def error_text(body: bytes) -> str:
    """Return the message in a server's error body, as one line of at most 300 characters. For an HTML page, the
    message is the page's text."""
    error = _error_in(body)
    if isinstance(error, dict):
        said = error.get("message") or error.get("detail")
        error = said if isinstance(said, str) else error.get("message", error)
    if isinstance(error, str) and _PAGE.match(error):
        error = one_line(html.unescape(_TAG.sub(" ", error[:_LONGEST_PAGE]))) or error
    return one_line(error) or "no explanation"


def error_field(body: bytes, name: str) -> str:
    """Return a field, such as `param` or `code`, from a server's error body. The result is empty if the field is
    missing or not text."""
    error = _error_in(body)
    value = error.get(name) if isinstance(error, dict) else None
    return value if isinstance(value, str) else ""


def status_in(body: bytes) -> int:
    """Return the HTTP status that an error in a reply's body names, or 0 if it names none."""
    error = _error_in(body)
    fields = error if isinstance(error, dict) else {}
    named = [str(fields.get(name)).lower() for name in ("code", "status", "status_code", "type")]
    numbers = [int(code) for code in named if _STATUS.fullmatch(code)]
    return next(iter(numbers + [_STATUS_OF[code] for code in named if code in _STATUS_OF]), 0)


def _error_in(body: bytes) -> object:
    """Return the error in a reply's body: its object or, if there is none, the body as text."""
    try:
        listed = orjson.loads(body) if body[:1] == b"[" else None  # Google puts an error into a list.
        data = listed[0] if isinstance(listed, list) and isinstance(listed[0], dict) else reply_of(body)
    except FAULTS_OF_JSON:
        return body.decode(errors="replace")
    choices = data.get("choices")
    first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    return data.get("error") or first.get("error") or data


def one_line(message: object) -> str:
    """Put a text on one line, without control characters, and truncate it to 300 characters."""
    return " ".join(without_controls(str(message)[:5000]).split())[:300]
