"""An OpenAI-compatible server that fails in the way that a test chooses, at any time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from aiohttp import web


class FailingLLM:
    """Answers, refuses, breaks or hangs, as `mode` says: `ok`, `500`, `429` or `hang`. Counts what it is asked."""

    def __init__(self) -> None:
        self.mode, self.url = "ok", ""
        self.retry_after = "1"
        self.window: int | None = None
        """The context window that it reports. None: it does not list its models"""
        self.delay_s = 0.0
        self.questions = self.probes = self.listed = 0
        self._runner: web.AppRunner | None = None

    async def chat(self, request: web.Request) -> web.Response:
        said = (await request.json())["messages"][-1]["content"]
        if said == "Reply with OK.":
            self.probes += 1
        else:
            self.questions += 1
        await asyncio.sleep(self.delay_s)
        if self.mode == "hang":
            await asyncio.sleep(3600)
        if self.mode != "ok":
            return web.Response(status=int(self.mode), headers={"Retry-After": self.retry_after})
        choice = {"message": {"content": '{"answer": "Huygens"}'}, "finish_reason": "stop"}
        return web.json_response({"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": 2}})

    async def models(self, request: web.Request) -> web.Response:
        self.listed += 1
        if self.window is None:
            return web.Response(status=404)
        if self.mode != "ok":
            return web.Response(status=int(self.mode), headers={"Retry-After": self.retry_after})
        return web.json_response({"data": [{"id": "m", "max_model_len": self.window}]})

    async def listen(self, port: int = 0) -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self.chat)
        app.router.add_get("/v1/models", self.models)
        self._runner = web.AppRunner(app, shutdown_timeout=0.01)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port, reuse_address=True)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def die(self) -> None:
        """End like a killed process: nothing listens any longer."""
        if self._runner is not None:
            await self._runner.cleanup()


@contextlib.asynccontextmanager
async def failing_llm() -> AsyncIterator[FailingLLM]:
    llm = FailingLLM()
    await llm.listen()
    try:
        yield llm
    finally:
        await llm.die()
