"""What every language-model backend understands and answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

Schema = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt. Equal requests mean equal work: a backend uses nothing but these fields."""

    system: str
    user: str
    max_tokens: int
    schema: Schema | None = None
    """JSON schema of the answer: constrained decoding where the backend has it. It may still be broken."""
    temperature: float = 0.0
    seed: int = 0


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
