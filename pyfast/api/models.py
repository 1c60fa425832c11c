"""Language models in use: who has started one, in which event loop, and when it is closed."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import weakref
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyfast.errors import InputError
from pyfast.llm import LLM, FullLLM, open_llm, with_defaults

_CLOSING_S = 5.0  # a model that takes longer to stop is left to the end of the process


def opened(llm: LLM | str, options: Mapping[str, Any] | None) -> LLM:
    """The model that is given, or that a text names. Raises `InputError` for options of one that is given."""
    if isinstance(llm, str):
        return open_llm(llm, **(options or {}))
    if options:
        raise InputError("llm_options go with an LLM that is given as text: give pyfast.open_llm its options")
    return llm


@dataclass(slots=True)
class _Use:
    """A model that is started, starting or closing."""

    alive: Callable[[], LLM | None]
    loop: asyncio.AbstractEventLoop
    starting: asyncio.Task[None]
    users: int = 0
    kept: bool = False
    closing: asyncio.Future[None] | None = None
    process: int = field(default_factory=os.getpid)

    @property
    def is_up(self) -> bool:
        task = self.starting
        return task.done() and not task.cancelled() and task.exception() is None


_uses: dict[int, _Use] = {}
"""By the model's id. A model that nobody holds any more takes its entry with it."""


@contextlib.asynccontextmanager
async def started(llm: LLM, keep: bool = False) -> AsyncIterator[FullLLM]:
    """The model, started once for all who use it at a time; closed when the last one leaves.

    With `keep` it stays loaded for the next one, and is closed when another event loop wants it, or the process
    ends. Raises `InputError` where another event loop is using it, and as its `start` does.
    """
    full = with_defaults(llm)
    use = await _use_of(llm, full)
    use.users += 1
    if keep and not use.kept:
        use.kept = True
        atexit.register(_close_in_time, use)
    try:
        await asyncio.shield(use.starting)
        yield full
    finally:
        use.users -= 1
        if not use.users and not (use.kept and use.is_up):
            await _end(llm, full, use)


async def _use_of(llm: LLM, full: FullLLM) -> _Use:
    loop = asyncio.get_running_loop()
    while (use := _uses.get(id(llm))) is not None and use.alive() is llm and use.process == os.getpid():
        if use.loop is not loop:
            if use.loop.is_closed():
                break
            if use.users or not use.loop.is_running():
                raise InputError(
                    f"{full.spec}: another event loop of this process is using it (pyfast.answer has one of its"
                    " own): wait until it is done, or open the model once more"
                )
            # It only waits for its next user: its own loop closes it first.
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_end(llm, full, use), use.loop))
        elif use.closing is not None:
            await asyncio.shield(use.closing)
        else:
            return use
    key = id(llm)
    try:
        alive: Callable[[], LLM | None] = weakref.ref(llm, lambda _: _uses.pop(key, None))
    except TypeError:  # an object that cannot be referred to weakly lives on
        alive = partial(_itself, llm)
    use = _uses[key] = _Use(alive, loop, asyncio.ensure_future(full.start()))
    return use


async def _end(llm: LLM, full: FullLLM, use: _Use) -> None:
    """Close it; who wants it meanwhile waits for that."""
    if use.closing is not None:
        await asyncio.shield(use.closing)
        return
    use.closing = asyncio.get_running_loop().create_future()
    try:
        use.starting.cancel()
        with contextlib.suppress(BaseException):
            await use.starting
        await _close(full)
    finally:
        if _uses.get(id(llm)) is use:
            del _uses[id(llm)]
        use.closing.set_result(None)


def _itself(llm: LLM) -> LLM:
    return llm


def _close_in_time(use: _Use) -> None:
    """When the process ends, and the event loop still runs in its thread."""
    llm = use.alive()
    if llm is not None and use.is_up and use.loop.is_running() and use.process == os.getpid():
        with contextlib.suppress(Exception):
            asyncio.run_coroutine_threadsafe(_close(with_defaults(llm)), use.loop).result(_CLOSING_S)


async def _close(llm: FullLLM) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_CLOSING_S):
            await llm.close()
