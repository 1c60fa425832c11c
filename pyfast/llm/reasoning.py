"""Reasoning that a model writes before its answer, in the same text: it is no part of the answer."""

from __future__ import annotations

import re
from dataclasses import replace

from pyfast.llm.protocol import Completion

_OPENED = re.compile(r"\s*<(think|thinking|reasoning)>", re.IGNORECASE)
_CLOSED = re.compile(r"</(?:think|thinking|reasoning)>", re.IGNORECASE)


def without_reasoning(completion: Completion) -> Completion:
    """The completion without the block `<think>...</think>` that its text begins with.

    A block that is not closed is all of the text. One whose beginning stands in the chat template, and not in the
    text, ends at its last `</think>`. Text that begins as JSON does is left as it is.

    Returns:
        The completion; its `reasoning_tokens`, where the server has not counted them, are the share that the
        block has of the text's characters.
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
    """Of so many tokens those of the reasoning, by its share of the characters."""
    return round(tokens * reasoning / max(whole, 1))
