"""Start language models, share them between callers, and close them after their last use."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from typing import Any

from pyfast.errors import InputError
from pyfast.llm import DEFAULT_ROLE, LLM, FullLLM, Role, open_llm, with_defaults
from pyfast.llm.protocol import read_role

_CLOSING_S = 5.0  # seconds; a model that takes longer ends with the process


GivenLLM = LLM | str | Mapping[str, LLM | str] | Mapping[Role, LLM]
"""A model, a string that names one, or a mapping from roles to either"""


@dataclass(frozen=True, slots=True)
class OpenedModels:
    """The models that one API call uses, and which of them stay loaded after the call."""

    by_role: Mapping[Role, LLM]
    kept: frozenset[Role]
    """The roles whose model the caller passed as an object and which therefore stays loaded"""

    def full(self) -> dict[Role, FullLLM]:
        """Return the model of each role, with all methods and attributes that the engine needs; a wrapper adds
        those that a model lacks. Roles that share a model also share its wrapper.
        """
        made = {id(llm): with_defaults(llm) for llm in self.by_role.values()}
        return {role: made[id(llm)] for role, llm in self.by_role.items()}

    @contextlib.asynccontextmanager
    async def started(self) -> AsyncIterator[None]:
        """Start all models, one after the other, and keep them loaded while the `with` block runs. Raises the same
        errors as the function `started`.
        """
        async with contextlib.AsyncExitStack() as stack:
            for role, llm in self.by_role.items():
                await stack.enter_async_context(started(llm, role in self.kept))
            yield


def opened(given: GivenLLM, options: Mapping[str, Any] | None = None) -> OpenedModels:
    """Open the models that a caller passed. Roles with the same string and options share one model.

    Args:
        given: One model for all roles, or a mapping from roles to models.
        options: Options of models given as strings. The key `NAME` sets an option of the default model, and
            `ROLE.NAME` one of the model for that role.

    Raises:
        InputError: A role does not exist, or an option is for a role without a model, or for a model that was
            passed as an object.
    """
    by_given = given if isinstance(given, Mapping) else {DEFAULT_ROLE: given}
    each: dict[Role, LLM | str] = {read_role(role): llm for role, llm in by_given.items()}
    if not each:
        raise InputError("llm: no model was given")
    options_of: dict[Role, dict[str, Any]] = {role: {} for role in each}
    for name, value in (options or {}).items():
        before, dot, after = name.partition(".")
        of, option = (read_role(before), after) if dot else (DEFAULT_ROLE, name)
        if of not in each:
            raise InputError(f"LLM option {name}: no LLM was given for the role {of!r}")
        if not isinstance(each[of], str):
            raise InputError(
                "llm_options: can only be used with an LLM given as a string; otherwise, pass them to"
                " pyfast.open_llm"
            )
        options_of[of][option] = value
    made: dict[str, LLM] = {}
    by_role: dict[Role, LLM] = {}
    for of, named in each.items():
        if not isinstance(named, str):
            by_role[of] = named
            continue
        key = repr((named, sorted(options_of[of].items())))
        if key not in made:
            made[key] = open_llm(named, **options_of[of])
        by_role[of] = made[key]
    _share_engines(by_role.values())
    return OpenedModels(by_role, frozenset(of for of, named in each.items() if not isinstance(named, str)))


def _share_engines(llms: Iterable[LLM]) -> None:
    """Make vLLM load a model only once, even if several roles use it with different adapters."""
    distinct = list({id(llm): llm for llm in llms}.values())
    if len(distinct) == 1:
        return
    from pyfast.llm.vllm import Vllm

    engines = [llm for llm in distinct if isinstance(llm, Vllm)]
    for one, other in combinations(engines, 2):
        other.share_engine(one)


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
"""The `_Use` of each started model, by the model's `id()`. An entry is deleted when nothing refers to its
model any more
"""


@contextlib.asynccontextmanager
async def started(llm: LLM, keep: bool = False) -> AsyncIterator[FullLLM]:
    """Start a model, unless another caller has already started it. The model closes when its last user leaves its
    `with` block.

    Args:
        llm: The model.
        keep: Keep the model loaded after its last use, until the process ends or another event loop needs it.

    Raises:
        InputError: Another event loop is using the model.
        LLMUnavailableError: The model's `start` failed.
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
                    f"{full.spec}: another event loop in this process is using this model (pyfast.answer has its"
                    " own); wait until that loop has finished with the model, or open the model again"
                )
            # The model waits for its next user. Only the event loop that started it can close it.
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_end(llm, full, use), use.loop))
        elif use.closing is not None:
            await asyncio.shield(use.closing)
        else:
            return use
    key = id(llm)
    try:
        alive: Callable[[], LLM | None] = weakref.ref(llm, lambda _: _uses.pop(key, None))
    except TypeError:  # An object without weak references stays open.
        alive = partial(_itself, llm)
    use = _uses[key] = _Use(alive, loop, asyncio.ensure_future(full.start()))
    return use


async def _end(llm: LLM, full: FullLLM, use: _Use) -> None:
    """Close a model. A caller that needs it in the meantime waits until it is closed, then starts it again."""
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
    """Close a model at the end of the process, if the event loop in which it started still runs."""
    llm = use.alive()
    if llm is None or use.closing is not None or use.process != os.getpid():
        return
    if use.is_up and use.loop.is_running():
        with contextlib.suppress(Exception):
            asyncio.run_coroutine_threadsafe(_close(with_defaults(llm)), use.loop).result(_CLOSING_S)


async def _close(llm: FullLLM) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_CLOSING_S):
            await llm.close()
