"""Routes whose functions take a JSON body and the request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, get_type_hints

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError

from pyfast.server.errors import ApiError
from pyfast.server.guard import Message, Receive, Send


class JsonRoute(APIRoute):
    """A route for a function `(asked: MODEL, request: Request)`, where MODEL is the type of the body.

    FastAPI makes the OpenAPI description of the route. But pydantic alone parses and checks the body, in one
    step. FastAPI would need two steps, and would look for dependencies, which these functions do not have.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the function that handles a request. This replaces FastAPI's method."""
        endpoint = self.endpoint
        model: type[BaseModel] = get_type_hints(endpoint)["asked"]

        async def handle(request: Request) -> Response:
            # A page of another site can send text from a browser without asking, but not JSON.
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
                raise ApiError(400, "send JSON, as Content-Type: application/json", "invalid_request")
            try:
                asked = model.model_validate_json(await request.body())
            except ValidationError as error:
                faults = [{**fault, "loc": ("body", *fault["loc"])} for fault in error.errors()]
                raise RequestValidationError(faults) from None
            answer: Response = await endpoint(asked, request)
            return answer

        return handle


class Direct:
    """ASGI middleware that calls the functions of `JsonRoute`s itself, and passes all other requests to the
    application.

    FastAPI would first go through its router, two layers for errors and three for dependencies. The functions
    of `JsonRoute`s need none of these layers. Python would resume the coroutine of each layer after each
    `await`, which takes time.
    """

    def __init__(
        self,
        app: Any,
        routes: Iterable[Any],
        refuse: Callable[[Request, Exception], Awaitable[Response]],
        refused: tuple[type[Exception], ...],
    ) -> None:
        """Wrap an application.

        Args:
            app: The application. It gets all requests that match no `JsonRoute`.
            routes: The application's routes.
            refuse: A function that turns an error into a response.
            refused: The types of the errors for which `refuse` is called. Other errors go to the caller.
        """
        self._app, self._refuse, self._refused = app, refuse, refused
        self._routes = {
            (method, route.path): (route, route.get_route_handler())
            for route in routes
            if isinstance(route, JsonRoute)
            for method in route.methods or ()
        }

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one request."""
        found = self._routes.get((scope.get("method", ""), scope.get("path", "")))
        if found is None:
            await self._app(scope, receive, send)
            return
        scope["route"], handle = found
        request = Request(scope, receive, send)
        try:
            response = await handle(request)
        except self._refused as error:
            response = await self._refuse(request, error)
        await response(scope, receive, send)
