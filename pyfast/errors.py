"""The errors that pyfast raises on purpose. Each is one line that says what is wrong and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pydantic import ValidationError


class PyfastError(Exception):
    """Base of all errors that pyfast raises on purpose. The command line prints it as one line."""


class InputError(PyfastError):
    """A file or value given by the user cannot be used: a broken line, a missing id, no usable document."""


class GoldError(InputError):
    """A source of a corpus contains questions or gold. A search would find their answers."""


class IndexFormatError(PyfastError):
    """A folder or file is not a pyfast index, was written by another version, or is damaged."""


class RunError(PyfastError):
    """The run cannot continue: a full disk, too many failed questions, a spent budget. Its work is kept."""

    records: tuple[Any, ...] = ()
    """The finished records of a run in memory"""


class LLMUnavailableError(RunError):
    """The LLM cannot be reached or has ended: the run stops. If one call fails alone, it is a `CallError`."""


class OutageError(LLMUnavailableError):
    """The LLM cannot take a call now: it cannot be reached, is overloaded, or has an internal error.

    The call itself is not the reason. A run waits until the LLM answers again, and gives up after a while. Other
    callers may try again.
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
    """One LLM call failed and is not repeated (rejected, too long, timed out). Only its question fails."""


class AnswerError(CallError):
    """One LLM reply cannot be used: it is cut off or breaks its schema. A system may continue without it."""


class CutOffError(AnswerError):
    """The reply was cut off at its token limit."""


class TransportError(CallError):
    """One LLM call failed several times in transit while others succeeded. The same command tries it again."""


class BudgetError(PyfastError):
    """A question has used up its calls, tokens, steps or seconds. Only this question fails. No system catches this
    error.
    """


class FallBackError(PyfastError):
    """In a strict run, a system needed to continue without a usable reply of the LLM. The question fails.

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
    """Return (field, error) for the first error that pydantic reports. The field is empty for the whole object."""
    first = error.errors(include_url=False, include_input=False)[0]
    return ".".join(map(str, first["loc"])), first["msg"]
