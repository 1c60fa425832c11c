"""The chat-completions format, which llama.cpp and the HTTP servers share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Prompts are kilobytes: orjson writes one of 7 kB in 6 us where json takes 35. In both directions it also
# refuses text that is not Unicode, and nesting deep enough to exhaust the stack.
import orjson

from pyfast.errors import CallError
from pyfast.llm.protocol import Completion, Request


def closed(schema: Any) -> Any:
    """The schema with every object closed: no fields but those it names.

    pydantic leaves them open, OpenAI's strict mode refuses that, and a small model would fill them.
    """
    if not isinstance(schema, Mapping):
        return schema
    node = dict(schema)
    for key in ("properties", "$defs"):
        if isinstance(node.get(key), Mapping):
            node[key] = {name: closed(part) for name, part in node[key].items()}
    for key in ("anyOf", "oneOf", "prefixItems"):  # not allOf: closed parts would exclude one another
        if isinstance(node.get(key), list):
            node[key] = [closed(part) for part in node[key]]
    if "items" in node:
        node["items"] = closed(node["items"])
    if "properties" in node:
        node.setdefault("additionalProperties", False)
    return node


def request_body(request: Request, fields: Mapping[str, Any]) -> bytes:
    """The JSON body of one request, without its schema. `fields` are the backend's own.

    Raises `CallError` if the prompt is not valid Unicode, or not text.
    """
    if request.embeds is not None:
        raise CallError("this LLM takes text, not embeddings")
    body = {
        **fields,
        "messages": request.messages,
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "seed": request.seed,
    }
    try:
        return orjson.dumps(body)
    except orjson.JSONEncodeError as error:
        raise CallError(f"the prompt cannot be sent as JSON: {error}") from None


def completion(text: object, finish_reason: object, usage: object) -> Completion:
    """A completion from fields that the server may have got wrong. Raises `CallError` if there is no text."""
    if not isinstance(text, str):
        raise CallError("the LLM's answer holds no text")
    counts = usage if isinstance(usage, dict) else {}
    details = counts.get("prompt_tokens_details")
    return Completion(
        text,
        finish_reason if isinstance(finish_reason, str) else "unknown",
        _count(counts.get("prompt_tokens")),
        _count(details.get("cached_tokens")) if isinstance(details, dict) else 0,
        _count(counts.get("completion_tokens")),
    )


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def error_text(body: bytes) -> str:
    """What an error body says, as one line of at most 300 characters."""
    try:
        data = orjson.loads(body)
        error = data.get("error", data)
        message = error.get("message", error) if isinstance(error, dict) else error
    except (ValueError, AttributeError):
        message = body[:2000].decode(errors="replace")
    return " ".join(str(message).split())[:300] or "no explanation"
