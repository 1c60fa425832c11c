"""Check the options of LLMs: sizes, counts and times."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from pyfast.errors import InputError

T = TypeVar("T")


def take_options(kind: str, build: Callable[..., T], *given: Any, **options: Any) -> T:
    """Check the options, then return `build(*given, **options)`.

    `build` must accept every option, and numbers must be positive. Otherwise the function raises an
    `InputError` that names the option.
    """
    for name, value in options.items():
        if isinstance(value, int | float) and not isinstance(value, bool) and value <= 0:
            raise InputError(f"{name} must be more than 0, not {value}")
    try:
        inspect.signature(build).bind(*given, **options)
    except TypeError as error:
        raise InputError(f"option not known to the LLM {kind!r}: {error}") from None
    return build(*given, **options)
