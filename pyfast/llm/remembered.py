"""A backend in front of another, that keeps what may be used again in later runs."""

from __future__ import annotations

import contextlib
import os
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path

import orjson

from pyfast.llm.protocol import Backend, Completion, Request


class Remembered:
    """Answers `reusable` requests from a folder, where the same model answered them before.

    One file per request in a folder per model, each written aside and renamed; the name follows from all that the
    answer depends on (`Request.digest`). To a run it is the model's own completion, tokens included: it is
    journalled, and a run that is resumed does not notice the difference. What cannot be read or written is asked
    for, or not kept.
    """

    def __init__(self, backend: Backend, folder: Path) -> None:
        self._backend = backend
        self._folder = folder / blake2b(backend.fingerprint().encode(), digest_size=8).hexdigest()
        self.spec, self.slots, self.context_window = backend.spec, backend.slots, backend.context_window

    async def start(self) -> None:
        """Start the backend. Raises as it does."""
        await self._backend.start()
        self.slots, self.context_window = self._backend.slots, self._backend.context_window

    async def close(self) -> None:
        """Close the backend."""
        await self._backend.close()

    def fingerprint(self) -> str:
        """The backend's own: answers are the same."""
        return self._backend.fingerprint()

    async def complete(self, request: Request) -> Completion:
        """What was answered before, or the backend's answer. Raises as the backend does."""
        if not request.reusable:
            return await self._backend.complete(request)
        path = self._folder / f"{request.digest().hex()}.json"
        with contextlib.suppress(OSError, ValueError, TypeError):
            return Completion(**orjson.loads(path.read_bytes()))
        completion = await self._backend.complete(request)
        if completion.finish_reason == "stop":
            with contextlib.suppress(OSError):
                self._folder.mkdir(parents=True, exist_ok=True)
                aside = path.with_suffix(f".{os.getpid()}")
                aside.write_bytes(orjson.dumps(asdict(completion)))
                aside.rename(path)
        return completion
