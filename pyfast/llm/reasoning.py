"""Remove the reasoning that a model writes before its answer."""

from __future__ import annotations

import re
from dataclasses import replace

from pyfast.llm.protocol import Completion

_OPENED = re.compile(r"\s*<(think|thinking|reasoning)>", re.IGNORECASE)
_CLOSED = re.compile(r"</(?:think|thinking|reasoning)>", re.IGNORECASE)


def without_reasoning(completion: Completion) -> Completion:
    """Remove the block `<think>...</think>` at the beginning of a completion.

    Everything up to the last `</think>` is reasoning. The opening tag may be missing, because some chat
    templates contain it. If there is an opening tag but no `</think>`, the whole text is reasoning. Text that
    begins like JSON does not change.

    Returns:
        The completion without the block. If the server did not count `reasoning_tokens`, the function
        estimates them from the block's share of all characters.
    """
    text = completion.text
    if "<" not in text or text.lstrip()[:1] in ("{", "["):
        return completion
    end = 0
    for thought in _CLOSED.finditer(text):
        end = thought.end()
    if end == 0:
        if _OPENED.match(text) is None:
            return completion
        end = len(text)
    counted = completion.reasoning_tokens or share_of_reasoning(completion.completion_tokens, end, len(text))
    return replace(completion, text=text[end:], reasoning_tokens=counted)


def share_of_reasoning(tokens: int, reasoning: int, whole: int) -> int:
    """Estimate how many of a completion's `tokens` are reasoning, in proportion to the characters.
    `reasoning` is the number of characters in the reasoning, and `whole` is the number of all characters."""
    return round(tokens * reasoning / max(whole, 1))
