"""Fallbacks for servers that refuse parts of a request.

vLLM and llama.cpp accept every field of a request, and the whole schema improves their answers. OpenAI's newer
models refuse `max_tokens` and `temperature`, and OpenAI's strict mode refuses `maxLength`. Other servers do not
know `seed` or `response_format`. pyfast cannot find out in advance what a server refuses, so it first sends the
whole request. If the server's error names a field, pyfast sends the request again without this field, or with a
simpler form of it, and if the server then answers, changes later requests in the same way (see
`LearnedFallbacks`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import orjson

from pyfast.llm.chat import closed, with_parts
from pyfast.llm.protocol import Schema, once_per_schema, without_system
from pyfast.utils.log import LOG

Body = dict[str, Any]


class Fallback(NamedTuple):
    """A fallback: a change to a request that a server refuses, for example to leave out a field."""

    field: str
    named: str
    """A pattern that finds the field's name in the server's error"""
    fault: str
    """A pattern that finds the reason for the refusal in the server's error"""
    sent: str
    """A description of the changed request"""
    make: Callable[[Body, Schema | None], object]


def response_format(schema: Schema) -> orjson.Fragment:
    """Return the value of the field `response_format` that asks for an answer matching this schema."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", str(schema.get("title", "")))[:64] or "answer"
    described = {"name": name, "strict": True, "schema": closed(schema)}
    return orjson.Fragment(orjson.dumps({"type": "json_schema", "json_schema": described}))


whole_format = once_per_schema(response_format)


# The keywords that each implementation of the strict mode accepts. OpenAI's newest models accept bounds and
# patterns too.
_TAKEN = {"type", "enum", "const", "title", "description", "additionalProperties", "properties", "$defs", "items"}


def strict(schema: Any) -> Any:
    """Reduce a schema to the keywords that OpenAI's strict mode supports. Additional fields are forbidden,
    and all fields are required.

    The reduced schema allows some answers that the whole schema forbids, so pyfast must check answers with the
    whole schema too.
    """
    if not isinstance(schema, Mapping):
        return schema
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}  # In strict mode, `$ref` must stand alone.
    whole = with_parts(schema, strict)
    node = {key: value for key, value in whole.items() if key in _TAKEN}
    if isinstance(alternatives := whole.get("anyOf") or whole.get("oneOf"), list):
        node["anyOf"] = alternatives
    if "properties" in node:
        node |= {"required": list(node["properties"]), "additionalProperties": False}
    return node


_strict_format = once_per_schema(lambda schema: response_format(strict(schema)))


def _rename(body: Body, _: Schema | None) -> None:
    body["max_completion_tokens"] = body.pop("max_tokens")


def _without(field: str) -> Callable[[Body, Schema | None], object]:
    return lambda body, _: body.pop(field)


def _whole(body: Body, _: Schema | None) -> None:
    del body["stream"]
    body.pop("stream_options", None)


def _simpler_schema(body: Body, schema: Schema | None) -> None:
    if schema is not None:
        body["response_format"] = _strict_format(schema)


def _any_json(body: Body, schema: Schema | None) -> None:
    """Ask the server for any JSON object, and write the schema into the first message, because the server
    does not enforce schemas."""
    body["response_format"] = {"type": "json_object"}
    if messages := body.get("messages"):
        first, *rest = messages
        instruction = f"The reply is one JSON object of this schema:\n{orjson.dumps(schema).decode()}"
        body["messages"] = (replace(first, content=f"{first.content}\n\n{instruction}"), *rest)


def _without_system(body: Body, _: Schema | None) -> None:
    body["messages"] = tuple(without_system(body["messages"]))


# A server may also name `max_tokens` because the number is too large, or `temperature` because it is too high.
# Only these words mean that it does not accept the field.
_UNKNOWN = (
    "unsupported|not support|not permitted|not allowed|unrecogni[sz]ed|unknown|unexpected|deprecated|unavailable"
    "|only the default|strictly positive"  # Old servers write the last one for a temperature of 0.
)
_SCHEMA = "response_format|schema|grammar|structured"

_SYSTEM = (
    r"system[ _]?(?:role|message|prompt|instruction)|role\W+(?:\w+\W+){0,3}system|roles? must alternate"
    "|only user and assistant|developer instruction"
)

FALLBACKS = (
    Fallback("stream_options", "stream_options", "", "streams without token counts", _without("stream_options")),
    Fallback("stream", r"\bstream(?:s|ing)?\b", _UNKNOWN, "no streams", _whole),
    Fallback("messages", _SYSTEM, "", "the system message before the first user message", _without_system),
    Fallback("max_tokens", r"\bmax_tokens\b", _UNKNOWN, "max_completion_tokens instead of max_tokens", _rename),
    Fallback("temperature", "temperature", _UNKNOWN, "no temperature", _without("temperature")),
    Fallback("seed", r"\bseed\b", _UNKNOWN, "no seed", _without("seed")),
    Fallback("response_format", _SCHEMA, "", "schemas without bounds and patterns", _simpler_schema),
    Fallback("response_format", _SCHEMA, "", "no schemas, only a request for JSON", _any_json),
    Fallback("response_format", _SCHEMA, "", "no schemas", _without("response_format")),
)

_FIELDS = {fallback.field for fallback in FALLBACKS}
Fallbacks = frozenset[Fallback]


def _is_in(fallback: Fallback, body: Body) -> bool:
    """Return whether a request contains what a fallback changes."""
    if fallback.field != "messages":
        return fallback.field in body
    messages = body.get("messages", ())
    return len(messages) > 1 and messages[0].role == "system"


def apply_fallbacks(body: Body, schema: Schema | None, fallbacks: Fallbacks) -> None:
    """Make the changes that the server needs (the fallbacks) in the body of a request. The body itself is
    changed, not a copy."""
    if fallbacks:
        for fallback in FALLBACKS:  # The order matters: of two fallbacks for one field, the last one counts.
            if fallback in fallbacks and _is_in(fallback, body):
                fallback.make(body, schema)


def fallback_for(complaint: str, body: Body, fallbacks: Fallbacks) -> Fallback | None:
    """Find the next fallback to try when a server has refused a request. `complaint` is the server's reason,
    and `fallbacks` were tried before. Returns None if no other fallback fits the reason."""
    for fallback in FALLBACKS:
        if _is_in(fallback, body) and fallback not in fallbacks:
            patterns = (fallback.named, fallback.fault)
            if all(re.search(pattern, complaint, re.IGNORECASE) for pattern in patterns):
                return fallback
    return None


class LearnedFallbacks:
    """The fallbacks that one server needs, learned from its answers.

    A fallback is kept once the server has needed it twice, because a single request may be at fault, or at once if
    the server has never accepted the whole form.
    """

    def __init__(self) -> None:
        self.kept: Fallbacks = frozenset()
        self._needs: Counter[Fallback] = Counter()
        self._taken: set[str] = set()
        self._told: Fallbacks = frozenset()

    def learn(self, body: Body, used: Fallbacks, needed: Fallbacks, server: str) -> None:
        """Record that the server has answered a request changed by the fallbacks `used`, after rejecting it
        without those in `needed`. `server` names the server in the log."""
        if len(self._taken) < len(_FIELDS):
            changed = {fallback.field for fallback in used}
            self._taken |= {one.field for one in FALLBACKS if one.field not in changed and _is_in(one, body)}
        if not needed:
            return
        self._needs.update(needed)
        self.kept |= {one for one in needed if one.field not in self._taken or self._needs[one] > 1}
        if not self.kept <= self._told:
            self._told = self.kept
            last = {one.field: one.sent for one in FALLBACKS if one in self.kept}
            changes = ", ".join(last.values())
            LOG.warning(
                "%s does not accept every field of a request; from now on, pyfast sends: %s", server, changes
            )

    def forget(self) -> None:
        """Forget everything, because another server may answer from now on."""
        self.kept = frozenset()
        self._needs.clear()
        self._taken.clear()
