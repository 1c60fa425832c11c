"""Servers of this process that answer as a test wants, and a backend that asks them. Real sockets throughout."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
from aiohttp import web
from aiohttp.test_utils import TestServer

from pyfast.llm import LLM, Request, dialogue, open_llm

ASK = Request(dialogue("What is the capital of France?", "Be brief."), 16)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def body(text: Any = "Paris", **usage: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"object": "chat.completion", "choices": [choice], "usage": usage}


@asynccontextmanager
async def serving(handler: Handler, models: Any = None, **options: Any) -> AsyncIterator[LLM]:
    """A started backend on a server of this process that answers with `handler`."""

    async def models_handler(request: web.Request) -> web.Response:
        return web.json_response(models) if models is not None else web.Response(status=404)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", handler)
    app.router.add_post("/v1/completions", handler)
    app.router.add_get("/v1/models", models_handler)
    async with TestServer(app) as server:
        backend = open_llm(f"openai:m@http://127.0.0.1:{server.port}", **{"backoff_s": 0.001, **options})
        await backend.start()
        try:
            yield backend
        finally:
            await backend.close()


def replying(*replies: web.Response | dict[str, Any]) -> tuple[Handler, list[dict[str, Any]]]:
    """A handler that gives the replies in turn, the last one for ever, and what it was asked."""
    asked: list[dict[str, Any]] = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(await request.json())
        reply = replies[min(len(asked), len(replies)) - 1]
        if isinstance(reply, dict):
            return web.json_response(reply)
        return web.Response(body=reply.body, status=reply.status, headers=reply.headers)

    return handler, asked


Speaker = Callable[[asyncio.StreamWriter, int], Awaitable[None]]


def http(answer: Any, *headers: str, status: str = "200 OK", version: str = "1.1") -> bytes:
    """A whole HTTP reply; without a length if `headers` say otherwise."""
    content = answer if isinstance(answer, bytes) else orjson.dumps(answer)
    lines = [f"HTTP/{version} {status}", *(headers or [f"Content-Length: {len(content)}"]), "", ""]
    return "\r\n".join(lines).encode() + content


@asynccontextmanager
async def speaking(speak: Speaker, **options: Any) -> AsyncIterator[LLM]:
    """A started backend on a server where `speak` writes to the socket what it likes.

    It is called with the writer and the number of the request, from 1; the connection stays open unless it
    closes it.
    """
    asked = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        try:
            while not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                if head.startswith(b"get"):
                    writer.write(http(b"", status="404 Not Found"))
                    continue
                await reader.readexactly(int(head.partition(b"content-length:")[2].split()[0]))
                asked += 1
                await speak(writer, asked)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client hung up, or the test is over
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    backend = open_llm(f"openai:m@http://127.0.0.1:{port}", **{"backoff_s": 0.001, **options})
    await backend.start()
    try:
        yield backend
    finally:
        await backend.close()
        server.close()
