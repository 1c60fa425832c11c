"""`pyfast serve` in the test's own event loop, over real sockets; and LLMs that can be watched and held."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from processes import Session

from pyfast.llm import Completion, Request

uvicorn = pytest.importorskip("uvicorn", reason="the extra `server` is not installed")
pytest.importorskip("fastapi", reason="the extra `server` is not installed")

from pyfast.server import create_app  # noqa: E402
from pyfast.server.http_server import listening  # noqa: E402

TITAN = [{"role": "user", "content": "Who discovered Titan?"}]


class Gate:
    """Answers when it is opened; counts what it has in progress and what was cancelled."""

    fingerprint = "gate-1"
    slots = 1000

    def __init__(self, text: str = "Titan") -> None:
        self.open = asyncio.Event()
        self.working = self.cancelled = 0
        self.text = text

    async def complete(self, request: Request) -> Completion:
        self.working += 1
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.working -= 1
        return Completion(f'{{"answer": "{self.text}"}}', "stop", 100, 40, 10)


@dataclass(frozen=True, slots=True)
class Served:
    """A server, and a client of it."""

    url: str
    app: Any
    client: aiohttp.ClientSession

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    async def post(self, path: str, body: Any, **options: Any) -> tuple[int, Any, Any]:
        """(status, JSON of the answer, headers)."""
        async with self.client.post(self.url + path, json=body, **options) as response:
            return response.status, await response.json(), response.headers

    async def ask(self, model: str = "direct", **fields: Any) -> tuple[int, Any, Any]:
        return await self.post("/v1/chat/completions", {"model": model, "messages": TITAN, **fields})

    async def metric(self, line: str) -> float:
        """The value of a metric."""
        async with self.client.get(self.url + "/metrics") as response:
            found = re.search(rf"^{re.escape(line)} (\S+)$", await response.text(), re.MULTILINE)
        return float(found[1]) if found else 0.0


@contextlib.asynccontextmanager
async def serving(*arguments: Any, **options: Any) -> AsyncIterator[Served]:
    """A server of `create_app(*arguments, **options)`."""
    app = create_app(*arguments, **options)
    server = uvicorn.Server(
        uvicorn.Config(
            app, http="httptools", ws="none", lifespan="on", log_config=None, timeout_graceful_shutdown=5
        )
    )
    with listening("127.0.0.1", 0, app.state.service.limits.seconds) as listener:
        running = asyncio.ensure_future(server.serve([listener]))
        await until(lambda: server.started or running.done())
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            async with aiohttp.ClientSession() as client:
                yield Served(url, app, client)
        finally:
            server.should_exit = True
            await running


async def until(is_so: Any) -> None:
    async with asyncio.timeout(20):
        while not is_so():
            await asyncio.sleep(0.005)


@contextlib.contextmanager
def process(folder: Path, *arguments: object, **options: Any) -> Iterator[tuple[Session, str]]:
    """`pyfast serve` as a process of its own: the process, and its URL."""
    session = Session(folder, "serve", *arguments, "--port", 0, command=None, **options)
    try:
        session.until(lambda: "serving at " in session.told)
        found = re.search(r"serving at (http://\S+)/v1", session.told)
        assert found, session.told
        yield session, found[1]
    finally:
        session.kill()
