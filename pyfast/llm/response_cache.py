"""A cache of an LLM's completions, for later runs."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path

import orjson

from pyfast.errors import AnswerError
from pyfast.llm.protocol import ENDED, Completion, FullLLM, InFront, Request
from pyfast.utils.files import write_atomically

_FORMAT = 1


class CachedLLM(InFront):
    """An LLM with a cache in a folder. A `reusable` request that the model has answered before gets the stored
    answer.

    Each model has its own folder, with one file for each request. The name of a file is a checksum of
    everything on which the answer depends (`Request.digest`). A run treats a cached completion like a new
    completion, and counts its tokens too. If a file is damaged or unreadable, pyfast asks the model again.
    """

    def __init__(self, llm: FullLLM, folder: Path) -> None:
        super().__init__(llm)
        # The cache does not change the fingerprint, because the answers are the same.
        self._folder = folder / blake2b(llm.fingerprint.encode(), digest_size=8).hexdigest()

    async def complete(self, request: Request) -> Completion:
        """Return the stored completion of a reusable request. If there is none, ask the model and store its
        completion. Raises the model's errors."""
        if not request.reusable:
            return await super().complete(request)
        digest = request.digest().hex()
        path = self._folder / f"{digest}.json"
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AnswerError):
            return _read(path.read_bytes(), digest, request)
        completion = await super().complete(request)
        with contextlib.suppress(OSError, ValueError, TypeError, AnswerError):
            entry = _entry(_sound(completion, request), digest)
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, entry)
        return completion


def _entry(completion: Completion, digest: str) -> bytes:
    """Write the content of a file of the cache: the request's digest, the completion, and a checksum of the
    two."""
    entry = {"format": _FORMAT, "request": digest, "completion": asdict(completion)}
    return orjson.dumps({**entry, "blake2b": blake2b(orjson.dumps(entry), digest_size=16).hexdigest()})


def _read(entry: bytes, digest: str, request: Request) -> Completion:
    """Read the completion in a file of the cache. Raises `ValueError`, `TypeError`, `KeyError` or
    `AnswerError` if the file is damaged or the completion does not fit the request."""
    completion = _sound(Completion(**orjson.loads(entry)["completion"]), request)
    if entry != _entry(completion, digest):
        raise ValueError("another request's, of another format, or edited")
    return completion


def _sound(completion: Completion, request: Request) -> Completion:
    """Return the completion if it is complete and has the right form for the request. Otherwise raise
    `ValueError`, `TypeError` or `AnswerError`."""
    counts = (completion.prompt_tokens, completion.cached_tokens, completion.completion_tokens)
    if completion.finish_reason.lower() not in ENDED or not all(
        type(count) is int and count >= 0 for count in counts
    ):
        raise ValueError("cut off, or with counts that are none")
    if not isinstance(completion.text, str):
        raise TypeError("no text")
    if request.schema is not None:
        orjson.loads(completion.text)
    if request.check is not None:
        request.check(completion)
    return completion
