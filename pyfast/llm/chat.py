"""The chat-completions format of requests and replies, which llama.cpp and the HTTP servers use."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from typing import Any

import numpy as np

# orjson writes a prompt of 7 kB in 6 us, json in 35 us. Both ways, orjson also refuses text that is not Unicode,
# and nesting deep enough to exhaust the stack.
import orjson

from pyfast.errors import CallError
from pyfast.llm.protocol import Completion, Request
from pyfast.llm.reply_cleaning import share_of_reasoning, without_controls


def closed(schema: Any) -> Any:
    """Return a copy of a JSON schema in which objects with `properties` may have no additional fields.

    Schemas from pydantic allow additional fields. But OpenAI's strict mode refuses schemas that allow them,
    and small models invent additional fields. Objects inside `allOf` do not change.
    """
    if not isinstance(schema, Mapping):
        return schema
    node = dict(schema)
    for key in ("properties", "$defs"):
        if isinstance(node.get(key), Mapping):
            node[key] = {name: closed(part) for name, part in node[key].items()}
    # `allOf` stays as it is: its parts, if closed, would exclude one another.
    for key in ("anyOf", "oneOf", "prefixItems"):
        if isinstance(node.get(key), list):
            node[key] = [closed(part) for part in node[key]]
    if "items" in node:
        node["items"] = closed(node["items"])
    if "properties" in node:
        node.setdefault("additionalProperties", False)
    return node


def request_fields(request: Request, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the JSON body of a request, without the schema for the answer. `fields` are
    additional fields for this server.

    A prompt of embeddings is in torch's file format, for vLLM's `/completions`. Raises `CallError` if torch is
    not installed.
    """
    prompt: dict[str, Any] = {"messages": request.messages}
    if request.embeds is not None:
        prompt = {"prompt_embeds": _as_tensor(request)}
    sampling = {"max_tokens": request.max_tokens, "temperature": request.temperature, "seed": request.seed}
    return {**fields, **prompt, **sampling}


def _as_tensor(request: Request) -> str:
    try:
        import torch
    except ImportError:
        raise CallError("a prompt in embeddings needs torch: pip install 'pyfast-qa[torch]'") from None
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
    """Make a completion from the parts of a server's reply. `usage` has the counts of tokens, and `reasoning`
    is the text of the model's reasoning.

    If the text is None, and the server gives a finish reason other than `stop` (for example `length`), the text
    becomes empty. In all other cases, a text that is not a string raises `CallError`.
    """
    reason = finish_reason[:100] if isinstance(finish_reason, str) else "unknown"
    if text is None and reason not in ("stop", "unknown"):
        # The text is missing because the reply was cut off, filtered, or a tool call: the finish reason says
        # which.
        text = ""
    if not isinstance(text, str):
        raise CallError("the LLM's answer has no text")
    counts = usage if isinstance(usage, dict) else {}
    completion_tokens = _count(counts.get("completion_tokens"))
    reasoning_tokens = _detail(counts, "completion_tokens_details", "reasoning_tokens")
    if not reasoning_tokens and isinstance(reasoning, str):
        whole = len(reasoning) + len(text)
        reasoning_tokens = share_of_reasoning(completion_tokens, len(reasoning), whole)
    return Completion(
        text,
        reason,
        _count(counts.get("prompt_tokens")),
        _detail(counts, "prompt_tokens_details", "cached_tokens"),
        completion_tokens,
        min(reasoning_tokens, completion_tokens),
    )


def _detail(counts: dict[str, Any], kind: str, name: str) -> int:
    details = counts.get(kind)
    return _count(details.get(name)) if isinstance(details, dict) else 0


def _count(value: object) -> int:
    # The limit is above any context window, so that sums fit into the database.
    return min(value, (1 << 32) - 1) if type(value) is int and value > 0 else 0


def error_text(body: bytes) -> str:
    """Return the message in the body of a server's error, as one line of at most 300 characters."""
    try:
        data = orjson.loads(body)
        error = data.get("error", data)
        message = error.get("message", error) if isinstance(error, dict) else error
    except (ValueError, AttributeError):
        message = body.decode(errors="replace")
    return one_line(message) or "no explanation"


def error_field(body: bytes, name: str) -> str:
    """Return a field, such as `param` or `code`, from the body of a server's error. The result is empty if
    the field is missing or not text."""
    try:
        value = orjson.loads(body)["error"][name]
    except (ValueError, LookupError, TypeError):
        return ""
    return value if isinstance(value, str) else ""


def one_line(message: object) -> str:
    """Write a text on one line, without control characters, and cut it at 300 characters."""
    return " ".join(without_controls(str(message)[:5000]).split())[:300]
