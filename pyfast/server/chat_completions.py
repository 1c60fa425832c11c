"""The HTTP path `/v1/chat/completions`, which answers questions."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import Response
from orjson import dumps

from pyfast.engine import Step
from pyfast.server.errors import ApiError, ClientLeft, api_error, stopping
from pyfast.server.middleware import JsonRoute, Message, Receive, Send
from pyfast.server.openai_objects import citations, completion, text, usage, without_addresses
from pyfast.server.schemas import ChatCompletion, ChatRequest
from pyfast.server.service import Asked, Service

T = TypeVar("T")
_CHANGED = (
    "the LLM's reply turned out to be unusable after part of it had been sent, and the new answer differs:"
    " discard the text so far and ask again, preferably without a stream"
)
_ALIVE_S = 15.0  # between two keep-alive messages in a stream, for proxies that cut silent connections
_PIECE = 1 << 16  # bytes to pass to the socket at once

router = APIRouter(route_class=JsonRoute)


@router.post(
    "/v1/chat/completions",
    response_model=ChatCompletion,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
    tags=["answer"],
)
async def chat(asked: ChatRequest, request: Request) -> Response:
    """Answer the last message of a conversation, with evidence as annotations."""
    service: Service = request.app.state.service
    id, read = f"chatcmpl-{random.getrandbits(128):032x}", service.read(asked, request.scope["api_key"])
    if asked.stream:
        service.queue.check()
        with_usage = asked.stream_options is not None and bool(asked.stream_options.include_usage)
        return _Stream(service, read, id, asked.model, asked.trace, with_usage)
    answered = await unless_gone(service.answer(read, id), request.receive)
    body = completion(id, int(time.time()), asked.model, answered.record, answered.title, answered.cached_tokens)
    return Response(dumps(body), media_type="application/json")


async def unless_gone(work: Coroutine[Any, Any, T], receive: Receive) -> T:
    """Return the result of `work`. If the client disconnects, cancel `work` and raise `ClientLeft`. Errors of
    `work` are raised too."""
    task, has_left = asyncio.current_task(), False
    assert task is not None

    async def watch() -> None:
        nonlocal has_left
        while (await receive())["type"] != "http.disconnect":
            pass
        has_left = True
        task.cancel()

    watching = asyncio.ensure_future(watch())
    try:
        return await work
    except asyncio.CancelledError:
        if has_left and not task.uncancel():
            raise ClientLeft from None
        raise
    finally:
        watching.cancel()


class _Stream(Response):
    """The answer as server-sent events: first the answer, as the LLM writes it, then its evidence. If the request
    asks for the trace, each of the system's steps is sent as it happens.

    The stream can only append text. If the LLM's reply proves unusable in the end, so that the answer differs from
    the text already sent, the stream ends with an error.

    A slow client delays only its own stream, whose events wait in this object.
    """

    def __init__(
        self, service: Service, asked: Asked, id: str, model: str, with_trace: bool, with_usage: bool
    ) -> None:
        super().__init__()
        self._service, self._asked, self._id = service, asked, id
        self._head = {"id": id, "object": "chat.completion.chunk", "created": int(time.time()), "model": model}
        self._with_trace, self._with_usage = with_trace, with_usage

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Send the stream. If the client disconnects, the question is cancelled."""
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        ready: asyncio.Queue[bytes | None] = asyncio.Queue()
        working = asyncio.ensure_future(self._work(ready.put_nowait))
        try:
            with contextlib.suppress(ClientLeft, TimeoutError):
                await unless_gone(self._send(ready, send), receive)
        except asyncio.CancelledError:  # The server is stopping.
            working.cancel()
            await send({"type": "http.response.body", "body": _line(stopping().body())})
            raise
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    async def _work(self, put: Callable[[bytes | None], None]) -> None:
        """Answer the question and queue each event for `_send`; None marks the end."""

        def on_step(step: Step) -> None:
            fields = {name: value for name, value in asdict(step).items() if value not in ("", 0, None)}
            del fields["question"]
            if step.error and step.error != "cancelled":  # The details may name addresses in the server's network.
                fields["error"] = "the LLM call failed" if step.role else "the step failed"
            if step.fell_back:
                fields["fell_back"] = without_addresses(step.fell_back)
            put(self._event({}, trace=fields))

        sent = ""

        def on_text(so_far: str) -> None:
            nonlocal sent
            if so_far != sent and so_far.startswith(sent):
                put(self._event({"content": so_far[len(sent) :]}))
                sent = so_far

        put(self._event({"role": "assistant", "content": ""}))
        listening = on_step if self._with_trace else None
        try:
            answered = await self._service.answer(self._asked, self._id, listening, on_text)
            on_text(text(answered.record))
            if text(answered.record) != sent:
                raise ApiError(502, _CHANGED, "answer_changed")
        except Exception as error:
            put(_line(api_error(error).body()))
        else:
            record = answered.record
            put(self._event({"annotations": citations(record, answered.title)}))
            put(self._event({}, "stop", state=record.state))
            if self._with_usage:
                put(_line({**self._head, "choices": [], "usage": usage(record, answered.cached_tokens)}))
            put(b"data: [DONE]\n\n")
        put(None)

    async def _send(self, ready: asyncio.Queue[bytes | None], send: Send) -> None:
        while True:
            try:
                async with asyncio.timeout(_ALIVE_S):
                    events: list[bytes | None] = [await ready.get()]
                while not ready.empty():  # Send all events that are ready in one message.
                    events.append(ready.get_nowait())
            except TimeoutError:
                events = [b": working\n\n"]
            waiting = b"".join(filter(None, events))
            # `send` waits for a slow client. The timeout limits this wait, and the size of a piece limits how much
            # unread text is in memory.
            async with asyncio.timeout(self._service.limits.seconds):
                for start in range(0, len(waiting), _PIECE):
                    piece = waiting[start : start + _PIECE]
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                if events[-1] is None:
                    await send({"type": "http.response.body", "body": b""})
                    return

    def _event(self, delta: dict[str, Any], finish_reason: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}
        return _line({**self._head, "choices": [choice], **more})


def _line(event: dict[str, Any]) -> bytes:
    return b"data: " + dumps(event) + b"\n\n"
