"""Run several coroutines of one question in parallel."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def together(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines in parallel, and return their results in order. If one of them raises an error, cancel
    the others."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        while tasks:  # An error that passes through here holds this call, so the call must not hold the tasks.
            tasks.pop().cancel()
