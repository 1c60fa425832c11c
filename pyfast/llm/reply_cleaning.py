"""Clean the replies of models and servers: remove control characters and reasoning, and correct impossible token
counts."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyfast.errors import CallError
from pyfast.llm.protocol import Completion, Request

CHARACTERS_PER_TOKEN = 32
"""The maximum number of characters in a prompt, per token of the context window.

No real text has more characters per token, so pyfast does not send a longer prompt
"""

# Control sequences of terminals, then control characters except tab and line break, then characters that change
# the direction of writing.
_CONTROL = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"
    "|(?:\x1b[\\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]{0,2000}(?:\x07|\x1b\\\\|\x9c)"
    "|\x1b[ -/]*[0-~]"
    "|\r(?=\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED = re.compile(r"\\[bfr]|\\u(?:00[01789]|20[26])", re.IGNORECASE)
_FIRST = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]|{_ESCAPED.pattern}", re.IGNORECASE)


def without_controls(text: str) -> str:
    """Remove control characters from a text. Tabs and line breaks stay.

    Example:
        >>> without_controls("a\\x1b[31mred\\x1b[0m\\tb\\x00")
        'ared\\tb'
    """
    if text.isprintable():
        return text
    return _CONTROL.sub("", text).replace("\r", "\n")


def has_escaped_controls(text: str) -> bool:
    """Return whether a JSON text may contain control characters in escaped form. If the result is False, the
    text certainly contains none."""
    return _ESCAPED.search(text) is not None


def before_controls(text: str) -> str:
    """Return the beginning of a JSON text that stays unchanged when control characters are removed, however the
    text continues."""
    return _FIRST.split(text, 1)[0]


def json_without_controls(text: str) -> str:
    """Remove control characters from all strings of a JSON text, as `without_controls` does. Raises `ValueError`
    if the text is not JSON.
    """
    return json.dumps(_cleaned(json.loads(text)))


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return without_controls(value)
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    if isinstance(value, dict):
        return {without_controls(name): _cleaned(item) for name, item in value.items()}
    return value


def without_controls_in(completion: Completion) -> Completion:
    """Remove control characters from all texts of a completion, as `without_controls` does. Half a pair of
    surrogates becomes U+FFFD."""
    text, reason = [_in_unicode(without_controls(text)) for text in (completion.text, completion.finish_reason)]
    if (text, reason) == (completion.text, completion.finish_reason):
        return completion
    return replace(completion, text=text, finish_reason=reason)


def _in_unicode(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if _SURROGATE.search(text) else text


def check_size(request: Request, context_window: int) -> None:
    """Raise `CallError` if the prompt is certainly too large for the context window."""
    size = sum([len(message.content) for message in request.messages])
    if size > CHARACTERS_PER_TOKEN * context_window:
        raise CallError(
            f"a prompt of {size:,} characters was not sent: the context window has {context_window:,} tokens"
            " (set the LLM's option context_window if this is wrong)"
        )


_TEMPLATE = 4096
"""The maximum number of tokens that a chat template and a server's own instructions add to a prompt"""


def bounded(completion: Completion, sent: int, max_tokens: int) -> Completion:
    """Limit the token counts of a completion to possible values.

    A token stands for at least one byte of text, so the limit for prompt tokens is `sent`, the number of bytes
    that were sent, plus some tokens for the chat template. The limit for completion tokens is the number of bytes
    in the answer or, if that is larger, `max_tokens`, because the server may leave the reasoning out of the
    answer.
    """
    prompt = min(completion.prompt_tokens, sent + _TEMPLATE)
    received = max(max_tokens, len(completion.text.encode(errors="replace")))
    completed = min(completion.completion_tokens, received)
    return replace(
        completion,
        prompt_tokens=prompt,
        cached_tokens=min(completion.cached_tokens, prompt),
        completion_tokens=completed,
        reasoning_tokens=min(completion.reasoning_tokens, completed),
    )


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


def cut_at(completion: Completion, stop: Sequence[str]) -> Completion:
    """Cut a completion at the first of the texts `stop` in it, for LLMs that do not stop there themselves.

    Example:
        >>> from pyfast.llm import Completion
        >>> cut_at(Completion("one</a> two</b>", "length"), ["</b>", "</a>"]).text
        'one'
    """
    places = [place for text in stop if (place := completion.text.find(text)) >= 0]
    return replace(completion, text=completion.text[: min(places)], finish_reason="stop") if places else completion


def share_of_reasoning(tokens: int, reasoning: int, whole: int) -> int:
    """Estimate how many of a completion's `tokens` are reasoning, in proportion to the characters.
    `reasoning` is the number of characters in the reasoning, and `whole` is the number of all characters."""
    return round(tokens * reasoning / max(whole, 1))
