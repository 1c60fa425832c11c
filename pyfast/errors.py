"""The errors that pyfast raises on purpose: one line that says what is wrong and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pydantic import ValidationError


class PyfastError(Exception):
    """Base of all errors that pyfast raises on purpose. The command line prints it as one line."""


class InputError(PyfastError):
    """A file or value given by the user cannot be used: a broken line, a missing id, no usable document."""


class GoldError(InputError):
    """A source of a corpus contains questions or gold. Their answers would get into the index."""


class IndexFormatError(PyfastError):
    """A folder or file is not a pyfast index, was written by another version, or is damaged."""


class RunError(PyfastError):
    """The run cannot continue: a full disk, too many failed questions, a spent budget. Its work is kept."""

    records: tuple[Any, ...] = ()
    """Of a run in memory: the records that were there"""


class LLMUnavailableError(RunError):
    """The LLM cannot be reached or has died: the run stops. A single failed call is a `CallError`."""


class OutageError(LLMUnavailableError):
    """The LLM cannot take a call now, and the call is not at fault: not reached, overloaded, an error of its own.

    A run waits until the LLM answers again, and gives up after a while; other callers may try again.
    """

    def __init__(
        self, message: str, kind: Literal["down", "busy", "slow"] = "down", retry_after: float = 0.0
    ) -> None:
        """Describe the outage.

        Args:
            message: One line.
            kind: `down`: not reached, or an error of its own. `busy`: overloaded. `slow`: no answer in time.
            retry_after: The seconds that the LLM asks to wait.
        """
        super().__init__(message)
        self.kind: Literal["down", "busy", "slow"] = kind
        self.retry_after = retry_after


class ModelNotFoundError(LLMUnavailableError):
    """The model's weights or its runtime are not installed; the message says which command installs them."""


class MissingPackageError(PyfastError, ModuleNotFoundError):
    """An optional package is not installed; the message says which command installs it."""


class CallError(PyfastError):
    """One LLM call failed and will not be repeated (rejected, too long, timed out): only its question fails."""


class AnswerError(CallError):
    """The reply of one LLM call is unusable: cut off, or not of the schema. A system may continue without it."""


class CutOffError(AnswerError):
    """The answer was cut off at its token limit."""


class TransportError(CallError):
    """One LLM call failed on its way several times while others passed. The same command tries it again."""


class BudgetError(PyfastError):
    """A question has used up its calls, tokens, steps or seconds. Only it fails; no system catches this error."""


class FallBackError(PyfastError):
    """In a strict run, a system would have continued without an answer of the LLM. The question fails.

    No system catches this error.
    """


class ArrayError(PyfastError, ValueError):
    """An array given to an op has the wrong dtype, shape or content; the message names the argument."""


class ConvergenceWarning(UserWarning):
    """An iterative op did not reach its tolerance in some pools. Their results are those of the last iteration.

    `warnings.simplefilter("error", ConvergenceWarning)` makes it an error.
    """

    def __init__(self, message: str, pools: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.pools = pools
        """Which of the batch, ascending"""


class DeviceError(PyfastError):
    """An op cannot use the GPU: no driver, no device, or a pyfast without its GPU ops."""


def first_fault(error: ValidationError) -> tuple[str, str]:
    """Return (field, fault) of the first error that pydantic reports. The field is empty for the whole object."""
    first = error.errors(include_url=False, include_input=False)[0]
    return ".".join(map(str, first["loc"])), first["msg"]
