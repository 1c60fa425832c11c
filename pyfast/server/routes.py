"""Routes whose functions take a JSON body and the request."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, get_type_hints

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError

from pyfast.server.errors import ApiError


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
