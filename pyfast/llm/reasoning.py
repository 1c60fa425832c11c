"""Remove reasoning that a model writes before its answer."""

from __future__ import annotations

import re
from dataclasses import replace

from pyfast.llm.protocol import Completion

_OPENED = re.compile(r"\s*<(think|thinking|reasoning)>", re.IGNORECASE)
_CLOSED = re.compile(r"</(?:think|thinking|reasoning)>", re.IGNORECASE)


def without_reasoning(completion: Completion) -> Completion:
    """Remove the block `<think>...</think>` at the beginning of a completion.

    If the block has no end, the whole text is reasoning. Some chat templates contain the opening tag, so that
    it is missing in the completion. Then everything before the last `</think>` is reasoning. Text that begins
    like JSON does not change.

    Returns:
        The completion without the block. If the server did not count `reasoning_tokens`, they are estimated
        from the share of characters in the block.
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
    """Estimate the tokens of the reasoning by its share of all characters."""
    return round(tokens * reasoning / max(whole, 1))
