"""Find the JSON object in a reply that has other text around it, such as a code fence or a sentence."""

from __future__ import annotations

import json
from collections.abc import Iterator

_LONGEST = 100_000  # characters that are looked through, from the end
_TRIES = 64  # braces at which an object may begin: text of nothing but these takes no longer

_DECODER = json.JSONDecoder()


def objects_in(text: str) -> Iterator[str]:
    """The outermost JSON objects in a text, the last one first."""
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
