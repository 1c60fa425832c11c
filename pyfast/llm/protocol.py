"""The interface of language models: requests, completions, the members of an LLM, the roles (purposes of prompts)
that it answers, and the collection of calls into batches, such as for a provider's Batch API."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from hashlib import sha256
from inspect import isawaitable, signature
from typing import Any, Literal, Protocol, TypeVar, get_args

import numpy as np
import numpy.typing as npt
import orjson

from pyfast.errors import CallError, InputError, OutageError

Schema = Mapping[str, Any]
OnText = Callable[[str], None]
"""A function that receives the text so far whenever the text has grown"""
T = TypeVar("T")

# For more bytes than this, hashlib releases the interpreter's lock and waits for it afterwards. With busy threads,
# the wait takes ten times as long as the hash.
AT_ONCE = 2047


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation with the LLM."""

    role: Literal["system", "user", "assistant"]
    content: str


def dialogue(user: str, system: str = "") -> tuple[Message, ...]:
    """Create the opening messages of a conversation with the LLM.

    Args:
        user: The user's message.
        system: The system message. Empty: no system message.

    Returns:
        One or two messages, for `Request.messages`.

    Example:
        >>> from pyfast.llm import dialogue
        >>> [message.role for message in dialogue("Who discovered Titan?", "Answer in one word.")]
        ['system', 'user']
    """
    asked = Message("user", user)
    return (Message("system", system), asked) if system else (asked,)


def without_system(messages: Sequence[Message]) -> list[Message]:
    """Prepend the system message's text to the next message, and return the messages without the system
    message."""
    contents = [each.content for each in messages if each.role == "system"]
    left = [each for each in messages if each.role != "system"]
    return [replace(left[0], content="\n\n".join([*contents, left[0].content])), *left[1:]] if left else []


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One call of an LLM. The reply must depend only on the request's fields.

    Example:
        >>> from pyfast.llm import Request, dialogue
        >>> request = Request(dialogue("Who discovered Titan?"), max_tokens=20)
        >>> request.temperature, request.schema
        (0.0, None)
    """

    messages: tuple[Message, ...]
    """The conversation so far. If the last message is the assistant's, the LLM continues its text"""
    max_tokens: int
    schema: Schema | None = None
    """The JSON schema that the answer should match.

    An LLM with constrained decoding enforces the schema, but an answer that is cut off may still not match it
    """
    temperature: float = 0.0
    seed: int = 0
    embeds: npt.NDArray[np.float32] | None = None
    """The whole prompt as embeddings of shape [tokens, hidden size], in place of `messages`.

    Only vLLM and transformers accept embeddings
    """
    stop: tuple[str, ...] = ()
    """Texts at which the reply ends, and which it does not contain. If the request has such texts, any reasoning
    stays in the reply's text"""
    on_text: OnText | None = None
    """A function that receives the reply's text so far. An LLM that streams its reply calls the function in the
    event loop after each piece. If the LLM starts again, so does the text.

    The function does not affect the reply, and an LLM may ignore it. It is not part of the digest
    """
    call: str = ""
    """The call's name in its run, if the LLM collects calls into batches. Equal requests have different names. The
    name is not part of the digest"""

    def digest(self) -> bytes:
        """Return 16 bytes that identify the request. Equal requests have equal digests, in any process.

        Raises `CallError` if the text of a message is not valid Unicode.
        """
        digest = sha256(repr((self.max_tokens, self.temperature, self.seed)).encode())
        if self.stop:
            digest.update(repr(self.stop).encode())
        for message in self.messages:
            try:
                text = message.content.encode()
            except UnicodeEncodeError as error:
                raise CallError(f"the prompt is not valid Unicode: {error.reason}") from None
            digest.update(f"\n{message.role} {len(text)}\n".encode())
            for start in range(0, len(text), AT_ONCE):
                digest.update(text[start : start + AT_ONCE])
        if self.schema is not None:
            digest.update(_canonical(self.schema))
        if self.embeds is not None:
            digest.update(repr(self.embeds.shape).encode())
            digest.update(np.ascontiguousarray(self.embeds, np.float32).data)
        return digest.digest()[:16]


@dataclass(frozen=True, slots=True)
class Completion:
    """The reply to one request, with token counts. A count is 0 if the LLM does not report it.

    Example:
        >>> from pyfast.llm import Completion
        >>> Completion("Huygens", "stop", prompt_tokens=12, completion_tokens=3).completion_tokens
        3
    """

    text: str
    finish_reason: str
    """Why the answer ended: `stop` (the model ended it), `length` (it was cut off at `max_tokens` or at the
    context window), or another word of the LLM
    """
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    """How many of the `completion_tokens` are reasoning. The reasoning is not part of `text`"""


class LLM(Protocol):
    """The interface of a language model. Every LLM has at least the two members `fingerprint` and `complete`.

    Optional members and their defaults:

    - `spec`: the string that names the LLM, without secrets. Default: the name of its class.
    - `context_window`: how many tokens the prompt and the completion may have together. The value must not change
      after `start` has returned. Default: 8192.
    - `slots`: how many requests the LLM can work on at the same time. Default: 64.
    - `async start()`: load the model, or check that it answers. Raise `LLMUnavailableError` or
      `ModelNotFoundError` if that fails.
    - `async close()`: release everything. pyfast may call it twice, or never.
    - `fault`: the `OutageError` of the last attempt at a call, or None if the LLM has replied since.
      `Engine.llm_is_out` needs it for questions that are cancelled before all attempts have failed. Default: None.
    - `weights`: a checksum of the folder from which the model was loaded. Only systems that send embeddings
      instead of text need it. Default: empty (not known).
    - `device`: `cuda` or `cpu`. Only systems that send embeddings instead of text need it. Default: `cpu`.

    Example:
        >>> from pyfast.llm import Completion, Request
        >>> class Parrot:
        ...     fingerprint = "parrot-1"
        ...
        ...     async def complete(self, request: Request) -> Completion:
        ...         return Completion(request.messages[-1].content, "stop")
    """

    @property
    def fingerprint(self) -> str:
        """A string that identifies the model: the same model has the same fingerprint on every machine.

        It must be quick to compute, and known before `start` is called. A run resumes only with a model that
        has the same fingerprint.
        """
        ...

    async def complete(self, request: Request) -> Completion:
        """Answer one request. pyfast makes many calls at the same time, which the LLM itself can combine
        into batches.

        Raises `CallError` if only this call failed, and `LLMUnavailableError` if the model no longer answers.
        If a call is cancelled, it must release its slot and must not disturb other calls.
        """
        ...


class FullLLM(LLM, Protocol):
    """An LLM with every member that the engine uses. `with_defaults` makes a `FullLLM` from any LLM."""

    @property
    def spec(self) -> str: ...

    @property
    def context_window(self) -> int: ...

    @property
    def slots(self) -> int: ...

    async def start(self) -> None:
        """Load the model, or check that it answers. Raises `LLMUnavailableError` or `ModelNotFoundError` with a
        message of one line.
        """
        ...

    async def close(self) -> None:
        """Release everything. Running calls fail with `LLMUnavailableError`. pyfast may call `close` twice, or
        never."""
        ...


PROBE = Request(dialogue("Reply with OK."), 16)
"""A small test call, which shows whether a model answers at all"""

ENDED = frozenset(
    (
        *("stop", "stop_sequence", "end_turn", "eos", "eos_token", "tool_calls", "function_call"),
        *("", "null", "none", "unknown", "complete", "completed"),
    )
)
"""The finish reasons of completions that are whole, in lower case"""
CONTEXT_WINDOW = 8192
SLOTS = 64
_MEMBERS = ("fingerprint", "spec", "context_window", "slots", "start", "close")


def with_defaults(llm: LLM) -> FullLLM:
    """Add the optional members that an LLM does not have, with the default values of `LLM`.

    Args:
        llm: An LLM with `fingerprint` and `complete`, and optionally more.

    Returns:
        The LLM itself if it has every member of `FullLLM`. Otherwise a wrapper that adds the missing members.

    Example:
        >>> from pyfast.llm import Completion, with_defaults
        >>> class Parrot:
        ...     fingerprint = "parrot-1"
        ...
        ...     async def complete(self, request):
        ...         return Completion(request.messages[-1].content, "stop")
        >>> with_defaults(Parrot()).context_window
        8192
    """
    full: Any = llm if _members(llm).issuperset(_MEMBERS) else InFront(llm)
    return full


def _members(llm: LLM) -> set[str]:
    """Return the names of an LLM's members. `hasattr` would compute a fingerprint, which can be slow."""
    return {*dir(type(llm)), *getattr(llm, "__dict__", {})}


def weights_of(llm: LLM) -> str:
    """Return a checksum of the folder from which an LLM was loaded, or an empty string for an LLM on a server."""
    return getattr(llm, "weights", "")


def device_of(llm: LLM) -> str:
    """Return the device on which this process makes embeddings for an LLM: `cuda` or `cpu`."""
    return getattr(llm, "device", "cpu")


def _forwarded(name: str, default: object = None) -> Any:
    """Return a property that reads the wrapped LLM's value at each access, because `start` may change it."""
    return property(lambda self: getattr(self._llm, name, default))


class InFront:
    """A wrapper around an LLM. Members that the LLM lacks have the default values of `LLM`."""

    context_window: int = _forwarded("context_window", CONTEXT_WINDOW)
    slots: int = _forwarded("slots", SLOTS)
    weights: str = _forwarded("weights", "")
    device: str = _forwarded("device", "cpu")
    fault: OutageError | None = _forwarded("fault")

    def __init__(self, llm: LLM) -> None:
        self._llm: Any = llm
        self.spec: str = getattr(llm, "spec", type(llm).__name__)

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the wrapped model. Raises `InputError` if it has none."""
        name = type(self._llm).__name__
        if "fingerprint" not in _members(self._llm):
            raise InputError(
                f"{name} has no fingerprint, so a run could be resumed with a different model; add the line "
                f'`fingerprint = "{name.lower()}-1"` to the class, and change the value whenever the '
                "model's replies change"
            )
        return self._llm.fingerprint

    async def start(self) -> None:
        """Start the wrapped model. Passes on its errors."""
        if hasattr(self._llm, "start"):
            await self._llm.start()

    async def close(self) -> None:
        """Close the wrapped model."""
        if hasattr(self._llm, "close"):
            await self._llm.close()

    async def complete(self, request: Request) -> Completion:
        """Ask the wrapped model. Passes on its errors, and raises `CallError` if it returns no completion."""
        answering = self._llm.complete(request)
        completion = await answering if isawaitable(answering) else answering
        if not isinstance(completion, Completion):
            kind = type(completion).__name__
            raise CallError(f"{self.spec}: its `complete` must be async and return a Completion, not {kind}")
        return completion


def build_with(kind: str, build: Callable[..., T], *given: Any, **options: Any) -> T:
    """Return `build(*given, **options)`. Raises `InputError` if `build` does not accept an option. `kind` is the
    name of the LLM, for the message."""
    try:
        signature(build).bind(*given, **options)
    except TypeError as error:  # Python's own message names the option.
        raise InputError(f"the LLM {kind!r} does not accept an option: {error}") from None
    return build(*given, **options)


ON_GPU = " on "
"""The part of a stage's name that marks work on a GPU, as in `encode on cuda`"""


@dataclass(frozen=True, slots=True)
class ServerCall:
    """One answered request, or a GPU's work in one call, for the ledger."""

    name: str
    """The stage's name, such as `embed`, `rerank` or `encode on cuda`"""
    texts: int
    tokens: int
    """The number of tokens, or 0 if the server does not report it"""
    seconds: float


_calls: ContextVar[list[ServerCall] | None] = ContextVar("calls", default=None)


@contextlib.contextmanager
def calls_counted() -> Iterator[list[ServerCall]]:
    """Yield a list that collects the calls that this thread makes in the `with` block."""
    calls: list[ServerCall] = []
    token = _calls.set(calls)
    try:
        yield calls
    finally:
        _calls.reset(token)


def count_calls(calls: Iterable[ServerCall]) -> None:
    """Add calls to the list of the innermost `calls_counted` of this thread, if there is one."""
    if (counted := _calls.get()) is not None:
        counted += calls


def take_options(kind: str, build: Callable[..., T], *given: Any, **options: Any) -> T:
    """Check the options, then return `build(*given, **options)`.

    Raises an `InputError` that names the option if `build` does not accept it, or if a number is not positive.
    """
    for name, value in options.items():
        if isinstance(value, int | float) and not isinstance(value, bool) and value <= 0:
            raise InputError(f"{name}: expected a number above 0, got {value}")
    return build_with(kind, build, *given, **options)


def once_per_schema(build: Callable[[Schema], T]) -> Callable[[Schema], T]:
    """Return a function that calls `build(schema)` once for each schema object and caches the result.

    The key of the cache is `id(schema)`, because a dict cannot be hashed. This works because a prompt always
    passes the same schema object. The cache also keeps the schema itself, so that no other object can get the
    same id.
    """
    known: dict[int, tuple[Schema, T]] = {}

    def remembered(schema: Schema) -> T:
        entry = known.get(id(schema))
        if entry is None:
            if len(known) >= 1024:  # The limit bounds the memory if a caller makes a new schema for each call.
                known.clear()
            entry = known[id(schema)] = (schema, build(schema))
        return entry[1]

    return remembered


@once_per_schema
def _canonical(schema: Schema) -> bytes:
    return orjson.dumps(schema, option=orjson.OPT_SORT_KEYS)


Role = Literal["default", "plan", "extract", "pick", "answer", "draft", "think", "judge", "read"]
"""The purpose of a prompt.

`plan` makes plans and queries. `extract` finds intermediate answers in the evidence. `pick` chooses evidence.
`answer` gives the final answer. `draft` gives a first answer, which may be replaced. `think` develops a line of
thought. `judge` judges answers. `read` extracts knowledge graphs from texts. `default` stands for all roles
without their own model """

ROLES: tuple[Role, ...] = get_args(Role)
DEFAULT_ROLE: Role = "default"

L = TypeVar("L", bound=LLM)


def by_role(llm: L | Mapping[Role, L]) -> Mapping[Role, L]:
    """Make a mapping from roles to models.

    Args:
        llm: One model, or a mapping from roles to models.

    Returns:
        The mapping. One model gets the role `default`.

    Example:
        >>> from pyfast.llm import by_role
        >>> by_role("embedded")
        {'default': 'embedded'}
    """
    return llm if isinstance(llm, Mapping) else {DEFAULT_ROLE: llm}


def read_role(name: str) -> Role:
    """Return `name` if it is the name of a role. Otherwise raise `InputError`."""
    for role in ROLES:
        if role == name:
            return role
    raise InputError(f"unknown role {name!r}; known: {', '.join(ROLES)}")


def check_given(who: str, asked: Collection[Role], given: Collection[Role]) -> None:
    """Raise `InputError` if there is no `default` model and one of the roles `asked` has no model of its own.
    `given` are the roles with a model. `who` is the name of the system, for the message."""
    missing = [role for role in asked if role not in given]
    if missing and DEFAULT_ROLE not in given:
        raise InputError(f"{who}: no LLM for its roles {', '.join(missing)}; set one for each, or a default")


def check_roles(who: str, asked: Collection[Role], given: Collection[Role]) -> None:
    """Raise `InputError` if a role has no model, as `check_given` does. Also raise it if a model is given for
    a role that the system `who` never uses."""
    check_given(who, asked, given)
    asked_default = any(role not in given for role in asked)
    for role in given:
        if role not in asked and not (role == DEFAULT_ROLE and asked_default):
            raise InputError(f"{who} has no prompt with the role {role!r}; its roles are: {', '.join(asked)}")


@dataclass(slots=True)
class Progress:
    """Counts how many questions of a run are in progress, and how many of them wait for the reply to a
    collected call."""

    running: int = 0
    waiting: int = 0

    @property
    def all_wait(self) -> bool:
        """Whether every question in progress waits for the reply to a collected call."""
        return self.waiting >= self.running

    @contextlib.contextmanager
    def question(self) -> Iterator[None]:
        """Count one more question in progress while the `with` block runs."""
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """A batch of LLM calls, as stored in a `BatchLog`, in which a resumed run finds the batches that its earlier
    processes submitted."""

    key: str
    """The key of the batch: 128 random bits in hexadecimal"""
    id: str | None
    """The id that the provider gave to the batch. None: the provider's reply did not arrive"""
    made: float
    """When the batch was made, before it was submitted, in seconds since the epoch"""
    calls: Mapping[int, str] = field(default_factory=dict)
    """The calls of the batch that have no completion in the run yet: the name of each call (`Request.call`), by
    its position in the batch"""


class BatchLog:
    """Stores the batches of a run. When `add` returns, the batch is on disk.

    This base class stores nothing. It is for runs without a folder, which cannot be resumed.
    """

    async def load(self, llm: str) -> Sequence[LoggedBatch]:
        """Return the stored batches of one LLM, the oldest first. `llm` is the name under which `add` stored
        them."""
        return ()

    async def add(self, llm: str, batch: LoggedBatch) -> None:
        """Store a batch. An LLM calls this method before it submits the batch."""

    async def identify(self, key: str, id: str) -> None:
        """Store the id that the provider gave to a batch."""

    async def remove(self, key: str) -> None:
        """Remove a batch from the store. Its calls can then be submitted again."""


class CollectingLLM(LLM, Protocol):
    """The interface of an LLM that collects the calls of a run into batches."""

    questions_at_once: int
    """How many questions a run should have in progress, so that batches become large"""

    async def join_run(self, progress: Progress, log: BatchLog) -> None:
        """Start collecting calls for a run. Raises `InputError` if another run uses this LLM."""
        ...

    def leave_run(self) -> None:
        """Stop collecting calls for the run."""
        ...


def collecting(llm: LLM) -> CollectingLLM | None:
    """If the LLM collects calls, return it without its wrappers, such as a cache. Otherwise return None."""
    inner: Any = llm
    while isinstance(inner, InFront):
        inner = inner._llm
    return inner if hasattr(inner, "join_run") else None
