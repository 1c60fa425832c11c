"""Run asynchronous code from blocking functions, in one shared event loop with its own thread.

The functions work in scripts, in several threads, and in notebooks, where another event loop already runs. A model
that one call has started can stay loaded for the next call.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import wait
from typing import Any, TypeVar

from pyfast.errors import InputError

T = TypeVar("T")
_PATIENCE_S = 5.0  # seconds for interrupted work to end
# seconds between two checks for signals. The kernel may deliver a signal to any thread, but Python handles it in
# the main thread, which would not notice it while waiting without a timeout.
_LOOK_S = 0.1

_lock = threading.Lock()
# the process, its event loop and its thread
_running: tuple[int, asyncio.AbstractEventLoop, threading.Thread] | None = None


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the library's event loop and return its result. A `KeyboardInterrupt` cancels the
    coroutine.

    Raises:
        InputError: The caller itself runs in this event loop, for example in a callback, so the call would wait
            for ever.
    """
    loop = blocking_loop()
    assert _running is not None
    if threading.current_thread() is _running[2]:
        work.close()
        raise InputError("a pyfast callback called a blocking pyfast function; use pyfast.Engine in callbacks")
    tasks: list[asyncio.Task[T]] = []
    ended = threading.Event()

    async def watched() -> T:
        tasks.append(asyncio.ensure_future(work))
        try:
            return await tasks[0]
        finally:
            ended.set()

    future = asyncio.run_coroutine_threadsafe(watched(), loop)
    try:
        while not wait([future], _LOOK_S).done:
            pass
        return future.result()
    except BaseException:
        # The caller was interrupted, but the work was not. Cancel it, and let it release what it holds.
        if not ended.is_set():
            loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
            ended.wait(_PATIENCE_S)
        raise


def blocking_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop that `run_blocking` uses. The first call starts the loop. A forked process gets its
    own loop."""
    global _running
    with _lock:
        if _running is None or _running[0] != os.getpid() or not _running[2].is_alive():
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=loop.run_forever, name="pyfast-loop", daemon=True)
            thread.start()
            if _running is None:
                atexit.register(_stop)
            _running = os.getpid(), loop, thread
        return _running[1]


def _stop() -> None:
    if _running is not None and _running[0] == os.getpid() and _running[2].is_alive():
        _, loop, thread = _running
        loop.call_soon_threadsafe(loop.call_soon, loop.stop)  # after the first step of tasks that just began
        thread.join(_PATIENCE_S)
