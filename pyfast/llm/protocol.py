"""What every language-model backend understands and answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import orjson

from pyfast.errors import CallError

Schema = Mapping[str, Any]
T = TypeVar("T")

# hashlib gives the interpreter's lock away for more bytes than this, and then waits for it: with busy threads
# beside it that takes ten times as long as the hashing.
_AT_ONCE = 2047


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation with the LLM."""

    role: Literal["system", "user", "assistant"]
    content: str


def dialogue(user: str, system: str = "") -> tuple[Message, ...]:
    """The messages that open a conversation: the system's, if there is one, and the user's."""
    asked = Message("user", user)
    return (Message("system", system), asked) if system else (asked,)


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One call of the LLM. A backend uses nothing but these fields."""

    messages: tuple[Message, ...]
    max_tokens: int
    schema: Schema | None = None
    """JSON schema of the answer: constrained decoding where the backend has it. It may still be broken."""
    temperature: float = 0.0
    seed: int = 0
    embeds: npt.NDArray[np.float32] | None = None
    """[tokens, hidden size] the whole prompt as embeddings, in place of `messages`; vLLM takes them, in process or
    served, and transformers"""
    reusable: bool = False
    """Whether later runs may take the answer from where `Remembered` kept it"""

    def digest(self) -> bytes:
        """16 bytes that name the work: equal for equal requests, in any process.

        Raises `CallError` if the text is not valid Unicode.
        """
        digest = sha256(repr((self.max_tokens, self.temperature, self.seed)).encode())
        for said in self.messages:
            try:
                text = said.content.encode()
            except UnicodeEncodeError as error:
                raise CallError(f"the prompt is not valid Unicode: {error.reason}") from None
            digest.update(f"\n{said.role} {len(text)}\n".encode())
            for start in range(0, len(text), _AT_ONCE):
                digest.update(text[start : start + _AT_ONCE])
        if self.schema is not None:
            digest.update(_canonical(self.schema))
        if self.embeds is not None:
            digest.update(repr(self.embeds.shape).encode())
            digest.update(np.ascontiguousarray(self.embeds, np.float32).data)
        return digest.digest()[:16]


@dataclass(frozen=True, slots=True)
class Completion:
    """The answer to one request. Counts are tokens; 0 where the backend does not tell."""

    text: str
    finish_reason: str
    """`stop`, `length` (cut off at `max_tokens` or at the context window), or the backend's own word."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


class Backend(Protocol):
    """One language model. `complete` is called concurrently; the backend batches as its engine likes."""

    spec: str
    """What the user wrote, such as `openai:MODEL@URL`; no secrets in it."""
    context_window: int
    """Tokens of prompt and completion together. Final once `start` has returned."""
    slots: int
    """How many requests it runs at once; more than that wait in the backend. Advice for admission."""

    async def start(self) -> None:
        """Load or probe the model. Raises `BackendError` or `ModelNotFoundError`, one line, if it cannot."""
        ...

    async def complete(self, request: Request) -> Completion:
        """Answer one request.

        Raises `CallError` if only this call failed and `BackendError` if the backend is gone. Cancelling the
        call frees its place in the backend and leaves the other calls alone.
        """
        ...

    async def close(self) -> None:
        """Give everything back. Running calls fail with `BackendError`. May be called twice, or never."""
        ...

    def fingerprint(self) -> str:
        """Which model this is, whatever the machine or the day; cheap, and known before `start`."""
        ...


def once_per_schema(build: Callable[[Schema], T]) -> Callable[[Schema], T]:
    """Remember `build(schema)` for each schema object.

    Prompts hand over the same schema object each time, and a dict cannot be hashed, so identity is the key.
    The schema is kept beside the result: while it lives, its id cannot pass to another object.
    """
    known: dict[int, tuple[Schema, T]] = {}

    def remembered(schema: Schema) -> T:
        found = known.get(id(schema))
        if found is None:
            if len(known) >= 1024:  # a caller that makes a schema per call must not fill the memory
                known.clear()
            found = known[id(schema)] = (schema, build(schema))
        return found[1]

    return remembered


@once_per_schema
def _canonical(schema: Schema) -> bytes:
    return orjson.dumps(schema, option=orjson.OPT_SORT_KEYS)
