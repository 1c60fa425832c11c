"""An LLM in front of another, that keeps what may be used again in later runs."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path

import orjson

from pyfast.errors import AnswerError
from pyfast.files import write_atomically
from pyfast.llm.protocol import Completion, FullLLM, InFront, Request

_FORMAT = 1


class CachedLLM(InFront):
    """Answers `reusable` requests from a folder, where the same model answered them before.

    One file per request in a folder per model, each written aside and renamed; the name follows from all that the
    answer depends on (`Request.digest`). To a run it is the model's own completion, tokens included: it is
    journalled, and a run that is resumed does not notice the difference. What cannot be read or written is asked
    for, or not kept; so is what is no completion of that request, or not what was written.
    """

    _llm: FullLLM

    def __init__(self, llm: FullLLM, folder: Path) -> None:
        self._llm = llm
        self._folder = folder / blake2b(llm.fingerprint.encode(), digest_size=8).hexdigest()
        self.spec = llm.spec

    @property
    def slots(self) -> int:
        """The model's own."""
        return self._llm.slots

    @property
    def context_window(self) -> int:
        """The model's own."""
        return self._llm.context_window

    async def start(self) -> None:
        """Start the llm. Raises as it does."""
        await self._llm.start()

    async def close(self) -> None:
        """Close the llm."""
        await self._llm.close()

    @property
    def fingerprint(self) -> str:
        """The model's own: answers are the same."""
        return self._llm.fingerprint

    async def complete(self, request: Request) -> Completion:
        """What was answered before, or the model's answer. Raises as the model does."""
        if not request.reusable:
            return await self._llm.complete(request)
        digest = request.digest().hex()
        path = self._folder / f"{digest}.json"
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AnswerError):
            return _read(path.read_bytes(), digest, request)
        completion = await self._llm.complete(request)
        with contextlib.suppress(OSError, ValueError, TypeError, AnswerError):
            entry = _entry(_sound(completion, request), digest)
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, entry)
        return completion


def _entry(completion: Completion, digest: str) -> bytes:
    """A file of the cache: what was asked, the completion, and a checksum of both."""
    entry = {"format": _FORMAT, "request": digest, "completion": asdict(completion)}
    return orjson.dumps({**entry, "blake2b": blake2b(orjson.dumps(entry), digest_size=16).hexdigest()})


def _read(entry: bytes, digest: str, request: Request) -> Completion:
    """What `_entry` wrote. Raises `ValueError`, `TypeError` or `KeyError` for anything else."""
    completion = _sound(Completion(**orjson.loads(entry)["completion"]), request)
    if entry != _entry(completion, digest):
        raise ValueError("another request's, of another format, or edited")
    return completion


def _sound(completion: Completion, request: Request) -> Completion:
    """The completion, where it may answer the request again. Raises `ValueError`, `TypeError` or `AnswerError`."""
    counts = (completion.prompt_tokens, completion.cached_tokens, completion.completion_tokens)
    if completion.finish_reason != "stop" or not all(type(count) is int and count >= 0 for count in counts):
        raise ValueError("cut off, or with counts that are none")
    if not isinstance(completion.text, str):
        raise TypeError("no text")
    if request.schema is not None:
        orjson.loads(completion.text)
    if request.check is not None:
        request.check(completion)
    return completion
