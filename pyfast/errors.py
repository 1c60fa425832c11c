"""The errors that pyfast raises deliberately. Each message is one line that states the problem and how to solve
it."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pydantic import ValidationError


class PyfastError(Exception):
    """Base class of all errors that pyfast raises deliberately. The command line prints them as one line."""


class InputError(PyfastError):
    """A file or a value from the user cannot be used. Examples: a broken line, a missing id, no usable
    document.
    """


class IndexFormatError(PyfastError):
    """A folder or file is not a pyfast index, or is damaged."""


class OtherBuildError(PyfastError):
    """An index, a knowledge graph, a run or an encoder was written by an earlier or later version of pyfast, in
    a format that this version does not read.
    """


def of_another_build(path: Path, found: object, known: object, again: str) -> OtherBuildError:
    """Create the error for something in the format `found` instead of `known`. `again` says how to rebuild it."""
    said = str(found or "unknown")
    formats = f"format {said if said.isprintable() else repr(found)}, not {known}"
    return OtherBuildError(f"{path}: written by another build of pyfast ({formats}): {again}")


class RunError(PyfastError):
    """The run cannot continue: the disk is full, too many questions failed, or the run's budget is spent. No
    finished work is lost.
    """

    records: tuple[Any, ...] = ()
    """The finished records, if the run is in memory"""
    resumed_by: str = "the same command"
    """What resumes the run"""


class RunInUseError(InputError):
    """Another process is working on the run."""


class OtherRunError(InputError):
    """A run was started with different values, and can be resumed only with those."""

    def __init__(self, message: str, changed: Sequence[str] = ()) -> None:
        """Create the error. `changed` contains a line such as `system.set_k was 20 and is now 5` for each value
        that differs."""
        super().__init__(message)
        self.changed = changed


class LLMUnavailableError(RunError):
    """The LLM is unreachable or its process has died, so the run stops. If only one call fails, the error is a
    `CallError`."""


class OutageError(LLMUnavailableError):
    """The LLM cannot take a call now: it is unreachable or overloaded, or has an internal error.

    The call itself is not the cause. A run waits until the LLM answers again, for a limited time, and then stops.
    In your own code, you can repeat the call.
    """

    def __init__(
        self, message: str, kind: Literal["down", "busy", "slow"] = "down", retry_after: float = 0.0
    ) -> None:
        """Describe the outage.

        Args:
            message: The error message, one line.
            kind: `down`: the LLM is unreachable or has an internal error. `busy`: it is overloaded. `slow`: it did
                not answer in time.
            retry_after: How many seconds the LLM asks to wait before the next call.
        """
        super().__init__(message)
        self.kind: Literal["down", "busy", "slow"] = kind
        self.retry_after = retry_after


class RefusalError(LLMUnavailableError):
    """The server rejects a call, either because of this prompt or because it would reject every call, for
    example if the key is wrong. A run determines the cause with a small test call: if the server answers it,
    only the rejected call fails.
    """

    def __init__(self, message: str, said: str = "", status: int = 0) -> None:
        """Describe the refusal.

        Args:
            message: The one-line error message if the server refuses every call.
            said: The error message if it answers other calls. Empty: the same.
            status: The HTTP status. 0: irrelevant.
        """
        super().__init__(message)
        self.said = said or message
        self.status = status

    def of_this_call(self) -> CallError:
        """Return the error for the call if the server answers other calls."""
        return CallError(f"{self.said}; the server answers other calls, so this call is the cause")


class ModelNotFoundError(LLMUnavailableError):
    """The model's weights or its runtime are not installed. The message contains the command that installs
    them."""


class MissingPackageError(PyfastError, ModuleNotFoundError):
    """An optional package is not installed. The message contains the command that installs it."""


class CallError(PyfastError):
    """One LLM call failed, and pyfast does not repeat it: the call was rejected, was too long, or timed out.

    Only the question that made the call fails.
    """


class AnswerError(CallError):
    """One LLM reply is unusable: it is cut off or does not match its schema.

    A system can catch the error and continue.
    """


class FilteredError(AnswerError):
    """A content filter on the server ended an LLM reply, and would do so again."""


class CutOffError(AnswerError):
    """An LLM reply was cut off at its token limit."""


class TransportError(CallError):
    """The connection failed several times during one LLM call, while other calls succeeded."""


class BudgetError(PyfastError):
    """A question has used up its calls, tokens or steps. Only this question fails.

    Systems must not catch this error.
    """


class QuestionError(PyfastError):
    """A question cannot be answered, because it names documents that are not in the index. Only this question
    fails."""


class FallBackError(PyfastError):
    """The LLM returned no usable reply, and the run is strict: instead of falling back to a simpler step, the
    question fails.

    Systems must not catch this error.
    """


class ArrayError(PyfastError, ValueError):
    """An array passed to an op has the wrong dtype, shape or content. The message names the argument."""


class ConvergenceWarning(UserWarning):
    """An iterative op did not reach its tolerance for some graphs. Their results are those of the last iteration.

    `warnings.simplefilter("error", ConvergenceWarning)` turns the warning into an error.
    """

    def __init__(self, message: str, pools: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.pools = pools
        """The indices (from 0, ascending) of the pools whose graphs did not reach the tolerance"""


class DeviceError(PyfastError):
    """An op cannot use the GPU: there is no driver or no device, or pyfast was built without GPU ops."""


def kind_of(error: Exception) -> str:
    """Return why a question failed, as a machine-readable word: `question` (see `QuestionError`), `budget` (its
    time, calls, tokens or steps are used up), `reply` (the LLM returned no usable reply), `call` (an LLM call
    failed) or `internal` (an unexpected error)."""
    kinds: tuple[tuple[tuple[type[Exception], ...], str], ...] = (
        ((QuestionError,), "question"),
        ((BudgetError, TimeoutError), "budget"),
        ((AnswerError, FallBackError), "reply"),
        ((CallError,), "call"),
    )
    return next((kind for types, kind in kinds if isinstance(error, types)), "internal")


def told_of(error: PyfastError) -> tuple[str, str]:
    """Return (class name, text) of an error, to send to another process, because pickle cannot restore all
    errors."""
    return type(error).__name__, str(error)


def error_of(name: str, text: str) -> PyfastError:
    """Recreate an error that another process has reported, from its class name and text."""
    kind = globals().get(name, RunError)
    return kind(text) if issubclass(kind, PyfastError) else RunError(text)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message about an unknown name: the most similar known name, if there is one."""
    near = get_close_matches(name, known, 1)
    return f"; did you mean {near[0]}?" if near else ""


def first_fault(error: ValidationError) -> tuple[str, str]:
    """Return (field, message) for the first error that pydantic reports. The field is empty if the error concerns
    the whole object."""
    first = error.errors(include_url=False, include_input=False)[0]
    return ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
