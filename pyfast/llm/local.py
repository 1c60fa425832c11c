"""Functions for LLMs that run on this machine: processor cores, folders and hashes of model files, schemas for
constrained decoding, and prompts in a model's chat template (which training uses too)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from pyfast.errors import CallError, InputError, ModelNotFoundError
from pyfast.llm.chat import CONTINUES, closed, one_line
from pyfast.llm.control_tokens import breaker_of
from pyfast.llm.protocol import Message, Request, Schema, without_system

LOG_VARIABLE = "PYFAST_LLM_LOG"
"""If this environment variable is set, the log of llama.cpp or vLLM appears on stderr"""


def compact(schema: Schema) -> Mapping[str, Any]:
    """Adapt a schema for llguidance (constrained decoding): answers have no additional fields, and their JSON
    is on one line.

    If line breaks were allowed, a small model might spend all its tokens on white space.
    """
    form = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
    return {**closed(schema), "x-guidance": form}


def find_folder(text: str, what: str = "model folder", file: str = "config.json") -> Path:
    """Check that a folder contains `what` (such as a model), and return its path. Raises `ModelNotFoundError` if
    the file `file` is missing from it."""
    folder = Path(text).expanduser()
    if not (folder / file).is_file():
        raise ModelNotFoundError(f"there is no {what} at {text} (no file {file})")
    return folder.resolve()


def check_window(size: int, request: Request, window: int) -> None:
    """Raise `CallError` if a prompt of `size` tokens and its answer do not fit into the context window."""
    if size + request.max_tokens > window:
        raise CallError(
            f"the prompt ({size} tokens) and the answer (up to {request.max_tokens}) exceed the context"
            f" window of {window} tokens"
        )


def checked_embeds(request: Request, hidden: int) -> npt.NDArray[np.float32]:
    """Return the embeddings of a request as float32[tokens, hidden]. Raises `CallError` if they do not have this
    shape, where `hidden` is the model's hidden size, or if a number is not finite."""
    embeds = np.asarray(request.embeds, np.float32, order="C")
    if embeds.ndim != 2 or embeds.shape[1] != hidden or not len(embeds):
        raise CallError(f"embeddings must be of shape [tokens, {hidden}] for this model, not {list(embeds.shape)}")
    if not np.isfinite(embeds).all():
        raise CallError("the embeddings contain non-finite values")
    return embeds


# The patterns of a model's files. Other files, such as a README, do not affect the fingerprint.
_PARTS = ("*.json", "*.jinja", "*.model", "*.txt", "*.safetensors", "*.bin", "*.pt")


def folder_hash(folder: Path) -> str:
    """Return `NAME:DIGEST`: the name of a model's folder, and its `folder_digest`. Raises
    `ModelNotFoundError` if a file cannot be read."""
    return f"{folder.name}:{folder_digest(folder)}"


def folder_digest(folder: Path) -> str:
    """Compute a hash of the files in a model's folder, from a sample of each (see `sample_hash`). Raises
    `ModelNotFoundError` if a file cannot be read."""
    files = sorted({file for pattern in _PARTS for file in folder.glob(pattern)})
    return digest([f"{file.name}:{sample_hash(file)}" for file in files])


def digest(value: Any) -> str:
    """Hash a JSON value to 16 hexadecimal digits."""
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS, default=str)
    return hashlib.blake2b(text, digest_size=8).hexdigest()


def sample_hash(path: Path) -> str:
    """Return `SIZE:HASH`: the size of a file, and a hash of its first MiB and of 64 other parts of 4 KiB.

    In a file of a model, these parts contain the header, the vocabulary and some of the weights. Raises
    `ModelNotFoundError` if the file cannot be read.
    """
    try:
        size = path.stat().st_size
        digest = hashlib.blake2b(digest_size=16)
        with path.open("rb") as file:
            digest.update(file.read(1 << 20))
            for part in range(1, 65):
                file.seek(max(0, size * part // 64 - 4096))
                digest.update(file.read(4096))
    except OSError as error:
        raise ModelNotFoundError(f"cannot read {path}: {error.strerror}") from None
    return f"{size}:{digest.hexdigest()}"


def chat(tokenizer: Any, messages: Sequence[Message], **options: Any) -> str:
    """Render messages with the model's chat template, up to the start of the reply. `options` are variables of the
    template.

    A control token in a message gets a space inside it, so that it becomes ordinary text (see
    `control_tokens.breaker`). If the template has no system role, the system message precedes the user's text.
    Raises `InputError` if the tokenizer has no template, or if the template does not accept the messages.
    """
    if not getattr(tokenizer, "chat_template", True):  # Some tokenizers have their template in code.
        raise InputError(f"{tokenizer.name_or_path}: the tokenizer has no chat template")
    broken = breaker_of(tokenizer)
    messages = [replace(each, content=broken(each.content)) for each in messages]
    because = "it leaves out a part of the prompt"
    begun = CONTINUES if messages[-1].role == "assistant" else {"add_generation_prompt": True}
    for tried in (messages, without_system(messages)):
        turns = [{"role": each.role, "content": each.content} for each in tried]
        try:
            text: str = tokenizer.apply_chat_template(turns, tokenize=False, **begun, **options)
        except Exception as error:  # A template may raise any exception.
            because = one_line(error)
            continue
        # Only the model's own earlier replies may be incomplete, because some templates leave out reasoning.
        if all(each.content.strip() in text for each in messages if each.role != "assistant"):
            return text
    raise InputError(f"{tokenizer.name_or_path}: the chat template rejected the prompt: {because}")


def prompt_tokens(tokenizer: Any, request: Request, **options: Any) -> list[int]:
    """Return the tokens of a request's prompt, as `chat_tokens` does, but with `CallError` in place of
    `InputError`."""
    try:
        return chat_tokens(tokenizer, request.messages, **options)
    except InputError as error:
        raise CallError(str(error)) from None


def chat_tokens(tokenizer: Any, messages: Sequence[Message], **options: Any) -> list[int]:
    """Return the tokens of the text that `chat` writes. Raises `InputError` as `chat` does, and for text that
    is not valid Unicode.
    """
    text = chat(tokenizer, messages, **options)
    try:
        # The template has already added the special tokens.
        tokens: list[int] = tokenizer.encode(text, add_special_tokens=False)
    except Exception as error:  # A tokenizer may raise any exception.
        raise InputError(
            f"{tokenizer.name_or_path}: the tokenizer rejected the prompt: {one_line(error)}"
        ) from None
    return tokens
