"""Find the JSON object in a reply of an LLM. The reply may have other text too, such as a code fence or a
sentence."""

from __future__ import annotations

import json
from collections.abc import Iterator

_LONGEST = 100_000  # the number of characters, counted from the end, that are searched for JSON
_TRIES = 64  # the maximum number of braces that are tried as the start of an object, so that no text takes long

_DECODER = json.JSONDecoder()


def objects_in(text: str) -> Iterator[str]:
    """Find the outermost JSON objects in a text, the last object first."""
    text = text[-_LONGEST:]
    objects: list[str] = []
    at = text.find("{")
    for _ in range(_TRIES):
        if at < 0:
            break
        try:
            value, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            if isinstance(value, dict):
                objects.append(text[at:end])
        at = text.find("{", end)
    yield from reversed(objects)
