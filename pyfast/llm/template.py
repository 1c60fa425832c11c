"""Write messages as one text, by the chat template of a model. Models in this process and trainings need this
text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyfast.errors import InputError
from pyfast.llm.chat import one_line
from pyfast.llm.control_tokens import breaker_of
from pyfast.llm.protocol import Message


def chat(tokenizer: Any, messages: Sequence[Message], **options: Any) -> str:
    """Write messages by the model's chat template, up to the start of the reply. `options` are variables of the
    template.

    If a message contains a control token, the function puts a space inside the token, so that it is ordinary
    text (`control_tokens.breaker`). If the template has no system role, the system message is put before the
    user's text. Raises `InputError` if the tokenizer has no template, or if the template does not accept the
    messages.
    """
    if not getattr(tokenizer, "chat_template", True):  # Some tokenizers have their template in code.
        raise InputError(f"{tokenizer.name_or_path}: its tokenizer has no chat template")
    broken = breaker_of(tokenizer)
    messages = [replace(each, content=broken(each.content)) for each in messages]
    because = "it leaves some of it out"
    for tried in (messages, _without_system(messages)):
        turns = [{"role": each.role, "content": each.content} for each in tried]
        try:
            text: str = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True, **options)
        except Exception as error:  # A template may raise any exception.
            because = one_line(error)
            continue
        # The model's own earlier replies may be shortened: some templates leave out reasoning.
        if all(each.content.strip() in text for each in messages if each.role != "assistant"):
            return text
    raise InputError(f"{tokenizer.name_or_path}: its chat template refuses the prompt: {because}")


def chat_tokens(tokenizer: Any, messages: Sequence[Message], **options: Any) -> list[int]:
    """Return the tokens of the text that `chat` writes. Raises `InputError` as `chat` does, and for text that
    is not valid Unicode.
    """
    text = chat(tokenizer, messages, **options)
    try:
        # The template has added the special tokens.
        tokens: list[int] = tokenizer.encode(text, add_special_tokens=False)
    except Exception as error:  # A tokenizer may raise any exception.
        raise InputError(
            f"{tokenizer.name_or_path}: its tokenizer refuses the prompt: {one_line(error)}"
        ) from None
    return tokens


def _without_system(messages: Sequence[Message]) -> list[Message]:
    """Move the text of the system message to the beginning of the next message, and return the messages without
    the system message."""
    contents = [each.content for each in messages if each.role == "system"]
    left = [each for each in messages if each.role != "system"]
    return [replace(left[0], content="\n\n".join([*contents, left[0].content])), *left[1:]] if left else []
