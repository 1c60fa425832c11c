"""Remove reasoning that a model writes before its answer."""

from __future__ import annotations

import re
from dataclasses import replace

from pyfast.llm.protocol import Completion

_OPENED = re.compile(r"\s*<(think|thinking|reasoning)>", re.IGNORECASE)
_CLOSED = re.compile(r"</(?:think|thinking|reasoning)>", re.IGNORECASE)


def without_reasoning(completion: Completion) -> Completion:
    """Remove the block `<think>...</think>` at the beginning of a completion.

    A block without an end is the whole text. If the chat template contains the opening tag, the block ends at the
    last `</think>`. Text that begins like JSON does not change.

    Returns:
        The completion. If the server did not count `reasoning_tokens`, they are estimated by the block's share of
        the characters.
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
    """The tokens of the reasoning, estimated by its share of the characters."""
    return round(tokens * reasoning / max(whole, 1))
