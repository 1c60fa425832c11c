"""One vLLM engine for several `Vllm` objects. The engine loads the model once, with the adapters of all
objects."""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from pyfast.errors import InputError
from pyfast.llm.vllm_engine import start_engine, stop_engines


def adapter_rank(adapter: Path) -> int:
    """Return the LoRA rank for which vLLM must reserve memory to load an adapter. Raises `InputError` if the
    adapter's configuration has no rank."""
    try:
        rank: int = orjson.loads((adapter / "adapter_config.json").read_bytes())["r"]
        return max(8, 1 << (rank - 1).bit_length())
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        raise InputError(f"{adapter}: adapter_config.json names no rank") from None


class SharedEngine:
    """A vLLM engine that runs while at least one `Vllm` object uses it. While the engine runs, the list
    `engines` contains it. Otherwise the list is empty."""

    def __init__(
        self, model: str, options: Mapping[str, Any], extra: Mapping[str, Any], batch_invariant: bool
    ) -> None:
        self.how = (model, dict(options), dict(extra), batch_invariant)
        """The options of the engine. Models with equal options can share one engine"""
        self.adapters: dict[Path, int] = {}
        """The folders of the adapters that the engine loads in addition to the model, with the rank of
        each"""
        # The only reference to the engine. `leave`, the garbage collector or the interpreter's exit removes it.
        self.engines: list[Any] = []
        self.numbers = itertools.count()
        """A counter. Each request to the engine gets another number from it"""
        self._users = 0
        self._changing = asyncio.Lock()
        weakref.finalize(self, stop_engines, self.engines)

    def add(self, adapters: Mapping[Path, int]) -> None:
        """Add adapters (their folders and ranks) to the engine. Call this method before the engine starts."""
        self.adapters |= adapters

    @property
    def is_idle(self) -> bool:
        """Whether the engine is unused: no `Vllm` object uses it, and none waits for it."""
        return not self._users and not self._changing.locked()

    @property
    def window(self) -> int:
        """The size of the engine's context window, in tokens."""
        window: int = self.engines[0].vllm_config.model_config.max_model_len
        return window

    def number_of(self, adapter: Path) -> int:
        """Return the number by which the engine knows an adapter, from 1."""
        return list(self.adapters).index(adapter) + 1

    async def enter(self) -> None:
        """Begin to use the engine. If the engine is not running, this loads the model in a thread. Raises the
        errors of `start_engine`."""
        async with self._changing:
            if not self.engines:
                await self._load()
            self._users += 1

    async def leave(self) -> None:
        """Stop using the engine. If no other `Vllm` object uses it, the engine stops."""
        async with self._changing:
            self._users -= 1
            if not self._users:
                engines = self.engines.copy()
                self.engines.clear()
                await asyncio.to_thread(stop_engines, engines)

    async def _load(self) -> None:
        model, options, extra, batch_invariant = self.how
        if self.adapters:
            ranks = self.adapters.values()
            options = {"enable_lora": True, "max_loras": len(ranks), "max_lora_rank": max(ranks), **options}
        others = set(multiprocessing.active_children())
        made: list[Any] = []
        loading = asyncio.ensure_future(
            asyncio.to_thread(start_engine, made, model, options, extra, batch_invariant)
        )
        try:
            await asyncio.shield(loading)
        except asyncio.CancelledError:
            # A thread cannot be cancelled, but this one gives up when it loses its engine.
            while not loading.done():
                for child in set(multiprocessing.active_children()) - others:
                    child.kill()
                await asyncio.wait([loading], timeout=0.1)
            loading.exception()  # Read the exception, so that asyncio does not report it.
            await asyncio.to_thread(stop_engines, made)
            raise
        self.engines.append(made.pop())
