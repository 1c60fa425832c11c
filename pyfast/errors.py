"""The errors that pyfast raises on purpose: one line that says what is wrong and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pydantic import ValidationError


class PyfastError(Exception):
    """Base of all errors that pyfast raises on purpose. The command line prints it as one line."""


class InputError(PyfastError):
    """A file or value given by the user cannot be used: broken line, missing id, no usable document."""


class IndexFormatError(PyfastError):
    """A folder or file is not a pyfast index, was written by another version, or is damaged."""


class RunError(PyfastError):
    """The run cannot go on: the disk is full, too much failed, its budget is spent. What it did is kept."""

    records: tuple[Any, ...] = ()
    """Of a run in memory: the records that were there"""


class LLMUnavailableError(RunError):
    """The LLM cannot be reached or has died: the run stops. A single failed call is a `CallError`."""


class OutageError(LLMUnavailableError):
    """The LLM cannot take a call now, and the call is not at fault: not reached, overloaded, an error of its own.

    A run waits until it answers again, and gives up after a while; anybody else may try again.
    """

    def __init__(
        self, message: str, kind: Literal["down", "busy", "slow"] = "down", retry_after: float = 0.0
    ) -> None:
        """`busy`: it says that too much is asked of it; `retry_after`: the seconds that it asks to wait."""
        super().__init__(message)
        self.kind: Literal["down", "busy", "slow"] = kind
        self.retry_after = retry_after


class ModelNotFoundError(LLMUnavailableError):
    """The model's weights or its runtime are not installed; the message says which command installs them."""


class CallError(PyfastError):
    """One LLM call failed for good (rejected, too long, timed out): only its question fails."""


class AnswerError(CallError):
    """One LLM call was answered, but not as asked: cut off, or not of the schema. A system may do without."""


class CutOffError(AnswerError):
    """The answer did not come to its end within its tokens."""


class TransportError(CallError):
    """One LLM call failed on its way, again and again, while others passed; the same command tries it again."""


class BudgetError(PyfastError):
    """A question has used up what it may: calls, tokens, steps or seconds. Only it fails; no system catches it."""


class FallBackError(PyfastError):
    """A system would have gone on without what the LLM did not give, in a run that is strict: the question fails;
    no system catches it.
    """


class ArrayError(PyfastError, ValueError):
    """An array given to an op has the wrong dtype, shape or content; the message names the argument."""


class ConvergenceWarning(UserWarning):
    """An op that iterates has not reached its tolerance in some pools: their results are what it had by then.

    `warnings.simplefilter("error", ConvergenceWarning)` makes an error of it.
    """

    def __init__(self, message: str, pools: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.pools = pools
        """Which of the batch, ascending"""


class DeviceError(PyfastError):
    """The GPU that an op is to run on cannot be used: no driver, no device, or a pyfast without its GPU ops."""


def first_fault(error: ValidationError) -> tuple[str, str]:
    """(the field, empty for the whole; what is wrong with it): the first thing that pydantic objects to."""
    first = error.errors(include_url=False, include_input=False)[0]
    return ".".join(map(str, first["loc"])), first["msg"]
