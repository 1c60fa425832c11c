"""Errors of the server, in the format that clients of OpenAI's API expect."""

from __future__ import annotations

import errno
from contextvars import ContextVar
from typing import Any

from fastapi.responses import Response
from orjson import dumps

from pyfast.errors import InputError, LLMUnavailableError, OutageError
from pyfast.utils.log import LOG

_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
"""The id of the request in progress, for the log"""
_UNEXPECTED = "internal_error"


class ApiError(Exception):
    """Raised to end a request with an HTTP status other than 200."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str,
        *,
        param: str | None = None,
        retry_after: int | None = None,
        kind: str | None = None,
        logged: str = "",
    ) -> None:
        """Create the error. `kind` is its type in the reply (None: the one that belongs to the status). `logged`
        replaces the message in the log."""
        super().__init__(_unicode(message))
        self.logged = logged or message
        self.status = status
        self.code = code
        self.param = None if param is None else _unicode(param)
        self.retry_after = retry_after
        self.kind = kind or _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")

    def body(self) -> dict[str, Any]:
        """Return the JSON of the error reply."""
        return {"error": {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}}

    def response(self) -> Response:
        """Return the HTTP response with the error."""
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return Response(dumps(self.body()), self.status, headers, "application/json")


class ClientLeft(ApiError):
    """Raised if the client has closed the connection."""

    def __init__(self) -> None:
        super().__init__(499, "the client has disconnected", "client_left")


def llm_unavailable(pause: float) -> ApiError:
    """Create the error for an LLM that does not answer, without the reason, which would name addresses in the
    server's own network. The client may try again after `pause` seconds."""
    fault = "the LLM does not answer; try again later"
    return ApiError(503, fault, "llm_unavailable", retry_after=max(1, round(pause)))


def stopping() -> ApiError:
    """Create the error for a request that the server can no longer answer because it is stopping."""
    return ApiError(503, "the server is stopping; ask again later", "stopping", retry_after=1)


def _unicode(text: str) -> str:
    """Return the text without lone surrogates. A request may contain them, but a reply must not."""
    return text.encode(errors="replace").decode()


def api_error(error: Exception) -> ApiError:
    """Convert any error to an `ApiError`, and log it if the client is not to blame. The details of an unexpected
    error appear only in the log."""
    made = _converted(error)
    if made.status >= 500 or made.status == 422:
        reason = made.logged if made is error else str(error) or str(made)
        told = (REQUEST_ID.get(), made.status, made.code, reason)
        if made.code == _UNEXPECTED:
            LOG.error("request %s failed (%d %s): %s", *told, exc_info=error)
        else:
            LOG.warning("request %s failed (%d %s): %s", *told)
    return made


def _converted(error: Exception) -> ApiError:
    if isinstance(error, ApiError):
        return error
    if isinstance(error, InputError):
        return ApiError(400, str(error), "invalid_request")
    if isinstance(error, LLMUnavailableError):
        return llm_unavailable(error.retry_after if isinstance(error, OutageError) else 0.0)
    if isinstance(error, TimeoutError):
        why = f": {error.__cause__}; ask again later" if str(error.__cause__ or "") else ""
        return ApiError(504, f"no answer within the server's time limit{why}", "timeout")
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return ApiError(507, "the server has no space left for this", "no_space")
    return ApiError(500, "the server failed; the reason is in its log", _UNEXPECTED)
