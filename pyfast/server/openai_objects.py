"""Convert the record of a question to the objects of OpenAI's API."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pyfast.engine import Evidence, Record
from pyfast.server.errors import ApiError

ABSTAINS = "The evidence does not contain the answer."
_ADDRESS = re.compile(r"https?://[^\s;,]+|(?:[\w.-]+|\[[\da-fA-F:]+\]):\d{2,5}\b")
Titles = Callable[[str], str]
"""A function that returns the title of a document, given its uri"""


def completion(
    id: str, created: int, model: str, record: Record, title: Titles, cached_tokens: int | None = None
) -> dict[str, Any]:
    """Create the reply with the answer to a question. `cached_tokens` is the number of prompt tokens that were in
    the LLM's prefix cache (None: unknown)."""
    message = {
        "role": "assistant",
        "content": text(record),
        "refusal": None,
        "annotations": citations(record, title),
    }
    return {
        "id": id,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}],
        "usage": usage(record, cached_tokens),
        "state": record.state,
    }


def text(record: Record) -> str:
    """Return the answer or, if there is none, a sentence that says so."""
    return ABSTAINS if record.answer is None else record.answer


def citations(record: Record, title: Titles) -> list[dict[str, Any]]:
    """Convert the evidence to annotations, one per piece, each of which refers to the whole text of the answer."""
    place = {"start_index": 0, "end_index": len(text(record))}
    return [{"type": "url_citation", "url_citation": {**place, **passage(one, title)}} for one in record.evidence]


def passage(one: Evidence, title: Titles) -> dict[str, Any]:
    """Convert a piece of evidence to JSON types. Its title is the `title` in the evidence's metadata or, if there
    is none, the document's title."""
    given = one.metadata.get("title")
    return {"title": given if isinstance(given, str) else title(one.uri), "url": one.uri, **quoted(one)}


def quoted(one: Evidence) -> dict[str, Any]:
    """Convert what a piece of evidence quotes to JSON types."""
    of_table = {name: one.metadata[name] for name in ("section", "header") if name in one.metadata}
    fields = {"snippet": one.snippet, "offsets": one.offsets, "segment": one.segment, "score": one.score}
    return {**fields, **of_table}


def usage(record: Record, cached_tokens: int | None) -> dict[str, Any]:
    """Return how many tokens and LLM calls the question used."""
    used = record.usage
    details = {} if cached_tokens is None else {"prompt_tokens_details": {"cached_tokens": cached_tokens}}
    return {
        "prompt_tokens": used.prompt_tokens,
        "completion_tokens": used.completion_tokens,
        "total_tokens": used.prompt_tokens + used.completion_tokens,
        **details,
        "llm_calls": used.llm_calls,
    }


def without_addresses(reason: str) -> str:
    """Return the reason for a failed call without addresses in the server's own network."""
    return _ADDRESS.sub("the LLM's server", reason)


def failure(record: Record) -> ApiError:
    """Create an error with the reason why a question failed, and the code of this kind of failure. The status says
    that the same request would fail again, so that clients do not repeat a costly request."""
    kind, reason = None if record.error == "question" else "server_error", record.reason or ""
    shown = reason
    if record.error == "call":
        shown = without_addresses(reason)
    fault = f"the question failed: {shown}"
    return ApiError(422, fault, f"failed_{record.error}", kind=kind, logged=reason)
