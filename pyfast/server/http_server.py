"""`serve`: the HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import uvicorn

from pyfast.api.models import GivenLLM
from pyfast.errors import InputError
from pyfast.server.app import create_app
from pyfast.server.limits import Limits, Queue, is_local
from pyfast.server.service import GivenIndex, Systems
from pyfast.utils.log import LOG
from pyfast.utils.options import SERVER_DEFAULTS, ServerOptions

KEYS_VARIABLE = "PYFAST_API_KEYS"
_ENDING_S = 2  # seconds after the grace until uvicorn gives up requests that were cancelled
_LOCAL = frozenset({"localhost", "127.0.0.1", "[::1]"})


def serve(
    index: GivenIndex | Mapping[str, GivenIndex] | None = None,
    llm: GivenLLM = "embedded",
    *,
    llm_options: Mapping[str, Any] | None = None,
    systems: Systems | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    concurrency: int = 64,
    budget: Mapping[str, Any] | None = None,
    limits: Limits | Mapping[str, Any] | None = None,
    options: ServerOptions = SERVER_DEFAULTS,
    stop: threading.Event | None = None,
) -> None:
    """Answer questions over HTTP until the process receives SIGINT or SIGTERM, or `stop` is set.

    The environment variable `PYFAST_API_KEYS` lists the keys that clients may use, separated by commas. The file
    `options.keys` can add more, and limit a key to a filter. Without keys, only programs on this machine can
    reach the server.

    Args:
        index: An index, its folder, a function that opens it, or a mapping from names to these. Requests that name
            no index use the first one. None: the server offers only systems that need no index. When an index
            changes, new requests use its new commit, and requests in progress finish with the old one.
        llm: As in `pyfast.Engine`.
        llm_options: Options of models given by name, as in `pyfast.answer`.
        systems: The systems to serve: a list of names, or a mapping from names to settings. None: all systems with
            no required settings.
        host: The address on which the server listens.
        port: The port. 0: the server picks a free port and logs it.
        concurrency: How many questions to process at once per index.
        budget: Limits per question, by name, as in `pyfast.Engine`.
        limits: Limits of requests: `pyfast.server.Limits`, or a mapping from names to values. Other limits keep
            their defaults.
        options: How the server answers, for example how it handles outages and conversations.
        stop: Set this event to stop the server, as SIGINT and SIGTERM do.

    Raises:
        InputError: An argument is not valid, or other machines can reach `host` and there are no keys.
        IndexFormatError: A folder contains no index, or its index is damaged.
        LLMUnavailableError: A model in this process cannot be started. A model on a server may start later.

    Example:
        >>> import threading
        >>> import pyfast
        >>> stop = threading.Event()
        >>> threading.Timer(1, stop.set).start()
        >>> pyfast.serve("IDX", "instant", port=0, stop=stop)
    """
    ServerOptions.require(options)
    keys = tuple(filter(None, map(str.strip, os.environ.get(KEYS_VARIABLE, "").split(","))))
    has_keys = bool(keys) or options.keys is not None
    if not has_keys and not is_local(host):
        raise InputError(
            f"{host}: set {KEYS_VARIABLE} or name a file of keys (--keys) if other machines can reach the server,"
            " because without keys, anyone could ask questions"
        )
    app = create_app(
        index,
        llm,
        llm_options=llm_options,
        systems=systems,
        concurrency=concurrency,
        budget=budget,
        limits=limits,
        options=options,
        keys=keys,
        hosts=None if has_keys else _LOCAL | {host},
    )
    config = uvicorn.Config(
        app,
        http="httptools",
        loop="asyncio",
        ws="none",
        lifespan="off",  # the models start before the server listens
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=max(1, round(options.grace)),
    )

    async def run() -> None:
        async with app.state.running():
            with listening(host, port, app.state.service.limits.seconds) as listener:
                server = _Server(config, app.state.service.queue)
                name = f"[{host}]" if ":" in host else host
                LOG.info("serving at http://%s:%d/v1", name, listener.getsockname()[1])
                await asyncio.gather(server.serve([listener]), _follow(stop, server))
                if server.force_exit:
                    raise KeyboardInterrupt

    asyncio.run(run())


class _Server(uvicorn.Server):
    """A uvicorn server that shuts down gracefully at the first signal, and immediately at the second."""

    def __init__(self, config: uvicorn.Config, queue: Queue) -> None:
        super().__init__(config)
        self._queue = queue

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for the requests in progress, and log what happens to their questions."""
        what = "stopping: waiting at most %d s for questions in progress (%d); a second signal ends the wait"
        LOG.info(what, grace := self.config.timeout_graceful_shutdown or 0, self._queue.admitted)
        cut_off = 0

        def end() -> None:
            nonlocal cut_off
            cut_off = self._queue.admitted
            for task in self.server_state.tasks:
                task.cancel()

        self.config.timeout_graceful_shutdown = grace + _ENDING_S
        ending = asyncio.get_running_loop().call_later(grace, end)
        await super().shutdown(sockets)
        ending.cancel()
        LOG.info("no longer serving; questions that were cut off: %d", cut_off or self._queue.admitted)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals. This replaces uvicorn's method, which would raise the signal again after a graceful
        shutdown."""

        def ends(*_: object) -> None:
            self.force_exit, self.should_exit = self.should_exit, True

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, ends) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


async def _follow(stop: threading.Event | None, server: _Server) -> None:
    """End the server when `stop` is set."""
    while stop is not None and not server.should_exit:
        server.should_exit = stop.is_set()
        await asyncio.sleep(0.05)


@contextlib.contextmanager
def listening(host: str, port: int, seconds: float) -> Iterator[socket.socket]:
    """Open the socket on which the server listens.

    Where the operating system supports it, a client that reads nothing for `seconds` seconds is disconnected.

    Raises `InputError` if the address is in use, or does not belong to this machine.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise InputError(f"cannot listen at {host}:{port}: {error.strerror}") from None
    # Connections inherit these options. Without the first one, the body of an answer waits 40 ms for the client to
    # acknowledge the headers. asyncio would set it, but only on sockets that name their protocol.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, min(int(seconds * 1000), 1 << 30))
    with listener:
        yield listener
