"""An LLM in front of another, that keeps what may be used again in later runs."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path

import orjson

from pyfast.files import write_atomically
from pyfast.llm.protocol import Completion, FullLLM, Request


class CachedLLM:
    """Answers `reusable` requests from a folder, where the same model answered them before.

    One file per request in a folder per model, each written aside and renamed; the name follows from all that the
    answer depends on (`Request.digest`). To a run it is the model's own completion, tokens included: it is
    journalled, and a run that is resumed does not notice the difference. What cannot be read or written is asked
    for, or not kept.
    """

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
        path = self._folder / f"{request.digest().hex()}.json"
        with contextlib.suppress(OSError, ValueError, TypeError):
            return Completion(**orjson.loads(path.read_bytes()))
        completion = await self._llm.complete(request)
        if completion.finish_reason == "stop":
            with contextlib.suppress(OSError):
                self._folder.mkdir(parents=True, exist_ok=True)
                write_atomically(path, orjson.dumps(asdict(completion)))
        return completion
