"""The ASGI application of the server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import Response
from orjson import dumps
from starlette.exceptions import HTTPException

from pyfast.api.models import GivenLLM
from pyfast.errors import InputError, PyfastError
from pyfast.server import chat_completions as chat
from pyfast.server import search_routes as search
from pyfast.server.batch_routes import router as jobs_pages
from pyfast.server.batches import Batches
from pyfast.server.errors import ApiError, api_error
from pyfast.server.limits import ApiKey, Limits, read_keys
from pyfast.server.middleware import OPEN, direct, guarded, watched
from pyfast.server.schemas import Error, Model, ModelList, Status, fault_of
from pyfast.server.service import CONTENT_TYPE, GivenIndex, Service, Systems
from pyfast.utils.options import SERVER_DEFAULTS, ServerOptions
from pyfast.utils.version import __version__

_NOT_TRACED = OPEN | {"/metrics"}
_FAULTS = {
    400: "The request is malformed, exceeds a server limit, or requires something that the server cannot do.",
    401: "The API key is missing or wrong.",
    403: "The API key can only access some documents, so it cannot see other users' questions.",
    404: "There is no such path, model, index, file or batch.",
    408: "The request's body did not arrive in time.",
    409: "The request conflicts with a batch: an unfinished batch needs the file, the batch has ended, or the"
    " `Idempotency-Key` belongs to a different request.",
    413: "The request's body is too large.",
    422: "The question failed, and would fail again.",
    429: "Too many questions are waiting, or the API key has reached a limit. `Retry-After` says when to retry.",
    503: "The LLM does not answer, or the server is stopping. `Retry-After` says when to retry.",
    504: "There was no answer within the time limit.",
    507: "The server has no space left for a file or a batch.",
}


def create_app(
    index: GivenIndex | Mapping[str, GivenIndex] | None = None,
    llm: GivenLLM = "embedded",
    *,
    llm_options: Mapping[str, Any] | None = None,
    systems: Systems | None = None,
    concurrency: int = 64,
    budget: Mapping[str, Any] | None = None,
    limits: Limits | Mapping[str, Any] | None = None,
    options: ServerOptions = SERVER_DEFAULTS,
    keys: Sequence[str] = (),
    hosts: Collection[str] | None = None,
) -> FastAPI:
    """Create the application that `serve` runs, to run it in your own ASGI server.

    Args:
        index: As in `serve`. All arguments up to `limits` are as in `serve`.
        llm: The models.
        llm_options: Options of the models.
        systems: Names of systems, or a mapping from names to settings.
        concurrency: How many questions to process at once per index.
        budget: Limits of each question.
        limits: Limits of requests.
        options: As in `serve`. When the server ends, a batch's questions in progress may still take
            `options.grace` seconds. (Your ASGI server has its own limit for requests.)
        keys: API keys that requests may use, in addition to those of the file `options.keys`. If there are none,
            requests need no key.
        hosts: The host names that requests may use for this server. None: any.

    Returns:
        The application. Its lifespan starts and stops the models.

    Raises:
        InputError: An argument is not valid.
        IndexFormatError: A folder contains no index, or its index is damaged.

    Example:
        >>> from pyfast.server import create_app
        >>> app = create_app("IDX", "instant", systems=["n2n", "rag"])
        >>> app.title
        'pyfast'
    """
    ServerOptions.require(options)
    limits = Limits.of(limits)
    service = Service(index, llm, llm_options, systems, limits, concurrency, budget, options)
    known = {key: ApiKey(key) for key in keys}
    for one in [] if options.keys is None else read_keys(Path(options.keys)):
        if one.key in known:
            raise InputError(f"{options.keys}: one of its keys is also in PYFAST_API_KEYS")
        known[one.key] = one
    batches: dict[str, Batches] = {}
    turn = asyncio.Lock()  # one batch at a time: requests waiting for an answer share the LLM with it
    if options.jobs is not None:
        for one in (ApiKey(""), *known.values()):
            if one.room not in batches:
                jobs = Path(options.jobs, *(("keys", one.room) if one.room else ()))
                batches[one.room] = Batches(jobs, service, options.grace, one, turn)

    @contextlib.asynccontextmanager
    async def running(_: object = None) -> AsyncIterator[None]:
        async with service.running(), contextlib.AsyncExitStack() as stack:
            for of_key in batches.values():
                await stack.enter_async_context(of_key.running())
            checking = asyncio.ensure_future(service.check_filters(key for key in known.values() if key.filter))
            stack.callback(checking.cancel)  # It may take seconds, and the server answers meanwhile.
            yield

    app = FastAPI(
        title="pyfast",
        version=__version__,
        lifespan=running,
        routes=[*chat.router.routes, *search.router.routes, *jobs_pages.routes],
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        telemetry={"operation_spans": False, "exclude": lambda scope: scope["path"] in _NOT_TRACED},
    )
    app.state.service, app.state.batches, app.state.running = service, batches, running
    _add_pages(app, service, bool(known))
    refused = (ApiError, PyfastError, TimeoutError, HTTPException, RequestValidationError)
    for error in refused:
        app.add_exception_handler(error, _refuse)
    app.add_middleware(direct, routes=app.routes, refuse=_refuse, refused=refused)
    count = service.metrics
    app.add_middleware(guarded, limits=limits, keys=known.values(), hosts=hosts, count=count.key_requests)
    app.add_middleware(watched, routes=app.routes, count=count.requests, with_access_log=options.access_log)
    return app


def _add_pages(app: FastAPI, service: Service, with_keys: bool) -> None:
    """Add the HTTP paths with information about the server itself."""

    def described(name: str) -> Model:
        return Model(id=name, object="model", created=service.started_at, owned_by="pyfast")

    @app.get("/v1/models", tags=["server"])
    async def models() -> ModelList:
        """List the names that requests can use as `model`: SYSTEM (with the first index) and SYSTEM@INDEX."""
        return ModelList(object="list", data=[described(name) for name in service.models])

    @app.get("/v1/models/{model}", tags=["server"])
    async def model(model: str) -> Model:
        """Return one name that requests can use as `model`, or status 404 if there is no such name."""
        if model not in service.models:
            raise ApiError(404, f"there is no model {model!r}", "model_not_found", param="model")
        return described(model)

    @app.get("/health", tags=["server"])
    async def health() -> Status:
        """Return status 200 if the server is running."""
        return Status(status="ok")

    @app.get("/ready", responses={503: {"model": Status}}, tags=["server"])
    async def ready(response: Response) -> Status:
        """Return status 200 if the server accepts questions, and 503 if it is stopping or waiting for the LLM."""
        status = service.status
        response.status_code = 200 if status == "ready" else 503
        return Status(status=status)

    @app.get(
        "/metrics", responses={200: {"content": {CONTENT_TYPE: {}}}}, response_class=Response, tags=["server"]
    )
    async def metrics() -> Response:
        """Return the server's metrics in Prometheus format."""
        return Response(service.metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return Response(dumps(_described(app, with_keys)), media_type="application/json")


async def _refuse(request: Request, error: Exception) -> Response:
    if isinstance(error, RequestValidationError):
        place, fault, field = fault_of({**one, "loc": one["loc"][1:]} for one in error.errors())
        error = ApiError(400, f"{place}: {fault}" if place else fault, "invalid_request", param=field)
    elif isinstance(error, HTTPException):
        code = "no_such_page" if error.status_code == 404 else "http"
        error = ApiError(error.status_code, str(error.detail), code)
    return api_error(error).response()


def _described(app: FastAPI, with_keys: bool) -> dict[str, Any]:
    """Return the OpenAPI description, with the errors that the server can return."""
    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, routes=app.routes)
        parts = made.setdefault("components", {})
        for name in ("HTTPValidationError", "ValidationError"):
            parts["schemas"].pop(name, None)
        error = Error.model_json_schema(ref_template="#/components/schemas/{model}")
        parts["schemas"] |= {**error.pop("$defs"), error["title"]: error}
        if with_keys:
            parts["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        refused = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
        for path, methods in made["paths"].items():
            for operation in methods.values():
                operation["responses"].pop("422", None)
                for status, meaning in _FAULTS.items():
                    operation["responses"].setdefault(str(status), {"description": meaning, "content": refused})
                if with_keys and path not in OPEN:
                    operation["security"] = [{"key": []}]
        app.openapi_schema = made
    return app.openapi_schema
