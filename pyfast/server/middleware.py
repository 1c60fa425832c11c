"""The middleware of the server: it checks each request's host name, API key, and the size and arrival time of its
body, calls the functions that take a JSON body directly, and counts and logs requests."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import re
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, MutableMapping
from secrets import token_hex
from typing import Any, get_type_hints
from urllib.parse import parse_qsl, quote

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from pyfast.server.errors import REQUEST_ID, ApiError, api_error, stopping
from pyfast.server.limits import ApiKey, Limits
from pyfast.utils.log import LOG

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Message, Receive, Send], Awaitable[None]]
Count = Callable[..., Any]

OPEN = frozenset({"/health", "/ready"})
"""Paths that need no key, because orchestrators such as Kubernetes call them"""
_NO_KEY = ApiKey("")
_REQUEST_ID = re.compile(rb"[\w.:/+=@-]{1,128}")
STREAMED = frozenset({"/v1/files"})
"""Paths whose functions read the request's body piece by piece, with their own limit"""
_USE_TOKENS = {("POST", "/v1/chat/completions"), ("POST", "/v1/batches")}
_PAGED = ("/v1/files", "/v1/batches")


def guarded(
    app: Any, limits: Limits, keys: Iterable[ApiKey], hosts: Collection[str] | None, count: Count
) -> AsgiApp:
    """ASGI middleware that checks requests, and passes each one to the application when its whole body has arrived
    (for the paths in `STREAMED`, without waiting for the body).

    Args:
        app: The application.
        limits: The server's limits. Only `body_bytes` and `body_seconds` are used.
        keys: API keys. If there are none, no key is required.
        hosts: The host names that requests may use for this server. None: any. The list protects a server without
            keys from DNS rebinding, in which a web page in a browser on this machine reaches the server under
            another host name.
        count: A function that returns the request counter for a key's name and `accepted` or `refused`.
    """
    known = [(one.key.encode(), one) for one in keys]

    async def serve(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        with contextlib.ExitStack() as held:
            try:
                key = scope["api_key"] = _key_of(scope["path"], headers, known, hosts)
                if key is not _NO_KEY:
                    state = "refused"
                    try:
                        held.enter_context(key.request((scope["method"], scope["path"]) in _USE_TOKENS))
                        state = "accepted"
                    finally:
                        count(key.name, state).inc()
                _check_parameters(scope)
                if scope["path"] not in STREAMED:
                    receive = await _arrived(scope, headers, receive, limits)
            except ApiError as error:
                await error.response()(scope, receive, send)
                return
            except ClientDisconnect:
                return
            await app(scope, receive, send)

    return serve


def _key_of(
    path: str, headers: dict[bytes, bytes], keys: Collection[tuple[bytes, ApiKey]], hosts: Collection[str] | None
) -> ApiKey:
    """Return the key of a request. Raises `ApiError` if its host name or its key is not allowed."""
    host = headers.get(b"host", b"").decode("latin-1").lower()
    name = host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]
    if hosts is not None and name not in hosts:
        raise ApiError(400, "this server does not answer requests to this host name", "unknown_host")
    if not keys or path in OPEN:
        return _NO_KEY
    scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
    # Every key is compared, each in constant time, so that timing reveals nothing about them.
    known = [one for key, one in keys if hmac.compare_digest(key, given.strip())]
    if scheme.lower() != b"bearer" or not given.strip():
        raise ApiError(401, "send an API key in the header Authorization: Bearer KEY", "invalid_api_key")
    if not known:
        raise ApiError(401, "this API key is not valid", "invalid_api_key")
    if known[0].filter and path == "/metrics":
        raise ApiError(403, "this key cannot see other users' questions", "forbidden")
    return known[0]


async def _arrived(scope: Message, headers: dict[bytes, bytes], receive: Receive, limits: Limits) -> Receive:
    """Wait for the whole body of a request. Return a replacement for `receive`, whose first call returns a message
    with the body, and each later call the next message from `receive`. Raises `ApiError` if the body is too large
    or arrives too slowly."""
    most, length = limits.body_bytes, headers.get(b"content-length", b"0")
    if length.isdigit() and int(length[:20]) > most:
        raise too_large("body", most)
    try:
        async with asyncio.timeout(limits.body_seconds):
            body = await Request(scope, limited_to(most, "body", receive)).body()
    except TimeoutError:
        raise ApiError(408, "the body did not arrive in time", "body_too_slow") from None
    first = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay


def _check_parameters(scope: Message) -> None:
    """Refuse query parameters that would be ignored, such as a filter. (Azure clients send an `api-version`.)"""
    known = {"api-version", *(("after", "limit") if scope["path"] in _PAGED else ())}
    for name, _ in parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True):
        if scope["path"].startswith("/v1/") and name not in known:
            fault = f"{name}: there is no such query parameter; the fields of a request are in its JSON body"
            raise ApiError(400, fault, "invalid_request", param=name)


def too_large(what: str, most: int) -> ApiError:
    """Create the error for a body or a file of more than `most` bytes."""
    return ApiError(413, f"the {what} is larger than {most} bytes", f"{what}_too_large")


def limited_to(most: int, what: str, receive: Receive, aside: int = 0) -> Receive:
    """Return a function like `receive` that raises `ApiError` when the body exceeds `most` bytes, not counting
    `aside` further bytes."""
    size = 0

    async def limited() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > most + aside:
            raise too_large(what, most)
        return message

    return limited


class JsonRoute(APIRoute):
    """A route for a function `(asked: MODEL, request: Request)`, where MODEL is the type of the body.

    FastAPI generates the route's OpenAPI description, but pydantic alone parses and checks the body, in one step.
    FastAPI would need two steps, and would look for dependencies, which these functions do not have.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the function that handles a request. This replaces FastAPI's method."""
        endpoint = self.endpoint
        model: type[BaseModel] = get_type_hints(endpoint)["asked"]

        async def handle(request: Request) -> Response:
            # A browser lets a page from another site send text without asking, but not JSON.
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
                raise ApiError(400, "send JSON, as Content-Type: application/json", "invalid_request")
            try:
                asked = model.model_validate_json(await request.body())
            except ValidationError as error:
                faults = [{**fault, "loc": ("body", *fault["loc"])} for fault in error.errors()]
                raise RequestValidationError(faults) from None
            return await endpoint(asked, request)

        return handle


def direct(
    app: Any,
    routes: Iterable[Any],
    refuse: Callable[[Request, Exception], Awaitable[Response]],
    refused: tuple[type[Exception], ...],
) -> AsgiApp:
    """ASGI middleware that calls the functions of `JsonRoute`s itself, and passes all other requests to the
    application.

    FastAPI would first go through its router, two layers for errors and three for dependencies, none of which the
    functions of `JsonRoute`s need. Python would resume each layer's coroutine after each `await`, which takes
    time.

    Args:
        app: The application, which receives all requests that match no `JsonRoute`.
        routes: The application's routes.
        refuse: A function that turns an error into a response.
        refused: The error types that `refuse` is called for. Other errors are passed to the caller.
    """
    handlers = {
        (method, route.path): (route, route.get_route_handler())
        for route in routes
        if isinstance(route, JsonRoute)
        for method in route.methods or ()
    }

    async def serve(scope: Message, receive: Receive, send: Send) -> None:
        found = handlers.get((scope.get("method", ""), scope.get("path", "")))
        if found is None:
            await app(scope, receive, send)
            return
        scope["route"], handle = found
        request = Request(scope, receive, send)
        try:
            response = await handle(request)
        except refused as error:
            response = await refuse(request, error)
        await response(scope, receive, send)

    return serve


def watched(app: Any, routes: Iterable[Any], count: Count, with_access_log: bool) -> AsgiApp:
    """ASGI middleware around all others. It gives each request an id, which appears in the response and the log,
    and counts requests by path and status when they end. If a request fails unexpectedly, or is cancelled because
    the server ends, it replies with an error in OpenAI's format, and logs one line.

    Args:
        app: The application.
        routes: The application's routes.
        count: A function that returns the counter for a path and a status.
        with_access_log: Whether to log each request when it ends.
    """

    async def serve(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        status, began, id = 0, time.perf_counter(), _request_id(scope["headers"])
        REQUEST_ID.set(id)
        path = quote(scope["path"])

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], (b"x-request-id", id.encode())]}
            await send(message)

        try:
            await app(scope, receive, noted)
        except asyncio.CancelledError:
            LOG.warning("request %s for %s: the server stopped before it answered", id, path)
            if not status:
                await stopping().response()(scope, receive, noted)
        except Exception as error:
            made = api_error(error)  # which also logs it
            if not status:
                await made.response()(scope, receive, noted)
        finally:
            # A request that is refused early has no route yet.
            known = (one.path for one in routes if one.path_regex.match(scope["path"]))
            count(getattr(scope.get("route"), "path", None) or next(known, "other"), status).inc()
            if with_access_log:
                client = ":".join(map(str, scope["client"] or "-"))
                spent = time.perf_counter() - began
                LOG.info('%s "%s %s" %d in %.3f s, request %s', client, scope["method"], path, status, spent, id)

    return serve


def _request_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the id that the client gave its request if it is safe to show anywhere, or else a new one."""
    given = next((value for name, value in headers if name == b"x-request-id"), b"")
    return given.decode() if _REQUEST_ID.fullmatch(given) else token_hex(16)
