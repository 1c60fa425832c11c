"""An LLM without a model, which answers immediately, to measure the speed of everything except the LLM.

Its answers have the right form but no meaning, so a run with this LLM says nothing about the quality of answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any
from zlib import crc32

import orjson

from pyfast.errors import InputError
from pyfast.llm.protocol import Completion, Request, Schema, once_per_schema, take_options

# A function that writes the JSON text of one value, given words of the prompt and a number computed from the
# request.
Writer = Callable[[list[str], int], str]
# A function that makes the writer for a part of a schema.
Compiler = Callable[[Any], Writer]

WORDS = 5  # the number of words in a made-up string: as many as a search query has
# An answer depends on this many characters at the prompt's end, the prompt's length, the seed and the schema.
TAIL = 512


class Instant:
    """An LLM without a model. If the request has a schema, the answer is JSON that matches it, and otherwise a few
    words of the prompt's last line.

    It reads only the end of the prompt, so that its own time does not distort measurements. If a field of the
    schema has `examples`, its value is one of the examples. Token counts are estimates: four characters count as
    one token.
    """

    def __init__(self, *, context_window: int = 1_000_000, slots: int = 4096) -> None:
        self.spec = "instant"
        self.context_window = context_window
        self.slots = slots

    async def start(self) -> None:
        """Do nothing: there is nothing to load."""

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""

    @property
    def fingerprint(self) -> str:
        """A text that identifies this LLM and the version of its answers."""
        return "instant:2"

    async def complete(self, request: Request) -> Completion:
        """Answer one request immediately. Raises `InputError` if the schema has a keyword that this LLM does
        not support."""
        prompt = request.messages[-1].content
        tail = prompt[-TAIL:].encode(errors="replace")
        number = crc32(tail, request.seed & 0xFFFFFFFF) + len(prompt)
        words = tail.rstrip().rpartition(b"\n")[2].decode().split() or ["instant"]
        write = _words if request.schema is None else _compiled(request.schema)
        text = write(words, number)
        if request.on_text is not None:
            for end in range(4, len(text), 4):
                request.on_text(text[:end])
        asked = sum([len(message.content) for message in request.messages])
        return Completion(text, "stop", asked // 4, 0, len(text) // 4 + 1)


def open_instant(rest: str, **options: Any) -> Instant:
    """Open the LLM `instant`. Raises `InputError` if `rest`, the text after `instant:`, is not empty."""
    if rest:
        raise InputError(f"cannot read the LLM 'instant:{rest}'; expected instant")
    return take_options("instant", Instant, **options)


def _words(words: list[str], number: int) -> str:
    start = number % max(1, len(words) - WORDS + 1)
    return " ".join(words[start : start + WORDS])


@once_per_schema
def _compiled(schema: Schema) -> Writer:
    try:
        return _compile(schema, schema.get("$defs", {}), ())
    except _Endless as error:
        raise InputError(f"the JSON schema {error} requires itself, so its values would never end") from None


class _Endless(Exception):
    """Raised if a definition in a schema requires itself, so that its values would never end."""


# Keywords to refuse, because if they were ignored, a wrong answer could look right.
_UNSUPPORTED = ("pattern", "format", "multipleOf", "not", "uniqueItems", "minProperties", "if", "contains")


def _compile(node: Any, defs: Schema, inside: tuple[str, ...]) -> Writer:
    """Make the function that writes values for one node of a schema. `defs` are the schema's definitions, and
    `inside` are the names of those around the node: a reference to one of them is recursive."""
    if not isinstance(node, dict):
        raise InputError(f"the LLM `instant` does not support the JSON schema {node!r}")
    if "const" in node:
        return _choice([node["const"]])
    if node.get("examples") or "enum" in node:
        return _choice(node.get("examples") or node["enum"])
    if "$ref" in node:
        name = str(node["$ref"]).removeprefix("#/$defs/")
        if name in inside:
            raise _Endless(name)
        if name not in defs:
            raise InputError(f"the JSON schema refers to {node['$ref']!r}, which it does not define")
        return _compile(defs[name], defs, (*inside, name))
    for keyword in _UNSUPPORTED:
        if node.get(keyword):
            raise _unsupported(keyword)
    compiled = partial(_compile, defs=defs, inside=inside)
    alternatives = node.get("anyOf") or node.get("oneOf") or node.get("allOf")
    if alternatives:
        if "allOf" in node and len(alternatives) > 1:
            raise _unsupported("allOf")
        return _first_finite(alternatives, compiled)
    kind = node.get("type", "object" if "properties" in node else "string")
    if isinstance(kind, list):
        return _first_finite([{**node, "type": one} for one in kind], compiled)
    if kind not in _KINDS:
        raise InputError(f"the JSON schema has the unknown type {kind!r}")
    return _KINDS[kind](node, compiled)


def _unsupported(keyword: str) -> InputError:
    return InputError(f"the LLM `instant` does not support {keyword!r} in a schema; add `examples` to the field")


def _choice(values: list[Any]) -> Writer:
    texts = [orjson.dumps(value).decode() for value in values]
    return lambda words, number: texts[number % len(texts)]


def _first_finite(nodes: list[Any], compiled: Compiler) -> Writer:
    endless = _Endless()
    for node in nodes:
        try:
            return compiled(node)
        except _Endless as error:
            endless = error
    raise endless


def _object(node: Schema, compiled: Compiler) -> Writer:
    fields: list[tuple[str, Writer, int]] = []
    for place, (name, field) in enumerate(node.get("properties", {}).items()):
        try:
            writer = compiled(field)
        except _Endless:
            if name in node.get("required", ()):
                raise
            continue
        # Each field gets a different number.
        fields.append((orjson.dumps(name).decode() + ":", writer, place * 7))

    def write(words: list[str], number: int) -> str:
        return "{" + ",".join([name + writer(words, number + shift) for name, writer, shift in fields]) + "}"

    return write


def _array(node: Schema, compiled: Compiler) -> Writer:
    fixed = [compiled(item) for item in node.get("prefixItems", [])]
    low = max(node.get("minItems", 0) - len(fixed), 0)
    high = max(min(node.get("maxItems", math.inf) - len(fixed), max(low, 1) + 2), 0)
    if fixed and "items" not in node:
        low = high = 0
    try:
        item = compiled(node.get("items") or {}) if high else None
    except _Endless:
        if low:
            raise
        item = None
    low = min(max(low, 1), high)  # With an empty list, a benchmark would have nothing to do.

    def write(words: list[str], number: int) -> str:
        texts = [writer(words, number + at) for at, writer in enumerate(fixed)]
        if item is not None:
            texts += [item(words, number + 3 * at) for at in range(int(low + number % (high - low + 1)))]
        return "[" + ",".join(texts) + "]"

    return write


def _string(node: Schema, _: Compiler) -> Writer:
    shortest = int(node.get("minLength", 0))
    longest = node.get("maxLength")

    def write(words: list[str], number: int) -> str:
        text = _words(words, number)
        if len(text) < shortest:
            text = (text + " ") * (shortest // (len(text) + 1) + 1)
            text = text[:shortest].rstrip().ljust(shortest, ".")
        return orjson.dumps(text[:longest]).decode()

    return write


def _bounds(node: Schema, step: float) -> tuple[float, float]:
    """Return (lowest, highest) for the values of a number field. An exclusive bound is moved inwards by `step`.

    Without an upper bound, the highest value is the lowest plus 9. Without a lower bound, the lowest value is 0,
    or the highest minus 9 if the highest is not above 0.
    """
    low, high = node.get("minimum", -math.inf), node.get("maximum", math.inf)
    low = max(low, node.get("exclusiveMinimum", -math.inf) + step)
    high = min(high, node.get("exclusiveMaximum", math.inf) - step)
    if low == -math.inf:
        low = 0 if high > 0 else high - 9
    return low, min(high, low + 9) if high == math.inf else high


def _integer(node: Schema, _: Compiler) -> Writer:
    low, high = _bounds({key: _INWARD[key](bound) for key, bound in node.items() if key in _INWARD}, 1)
    if low > high:
        raise InputError("the JSON schema has an integer field whose bounds allow no whole number")
    lowest, count = int(low), int(high) - int(low) + 1
    return lambda words, number: str(lowest + number % count)


# How to round an integer's bound inwards, because it may be a fraction.
_INWARD: dict[str, Callable[[float], int]] = {
    "minimum": math.ceil,
    "exclusiveMinimum": math.floor,
    "maximum": math.floor,
    "exclusiveMaximum": math.ceil,
}


def _number(node: Schema, _: Compiler) -> Writer:
    low, high = _bounds(node, 0)
    if low > high or (low == high and node.keys() & {"exclusiveMinimum", "exclusiveMaximum"}):
        raise InputError("the JSON schema has a number field whose bounds allow no number")
    # Eighths are exact in binary, and these values lie within exclusive bounds.
    values = [str(low + (high - low) * part / 8) for part in range(1, 8)]
    return lambda words, number: values[number % 7]


_KINDS: dict[str, Callable[[Schema, Compiler], Writer]] = {
    "object": _object,
    "array": _array,
    "string": _string,
    "integer": _integer,
    "number": _number,
    "boolean": lambda node, compiled: _choice([False, True]),
    "null": lambda node, compiled: _choice([None]),
}
