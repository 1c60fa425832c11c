"""The HTTP paths `/v1/retrieve` and `/v1/rerank`, which call no LLM."""

from __future__ import annotations

import asyncio
from uuid import uuid4

from fastapi import APIRouter, Request
from fastapi.responses import Response
from orjson import dumps

from pyfast.api.search import rerank_texts
from pyfast.server.chat_completions import unless_gone
from pyfast.server.errors import ApiError
from pyfast.server.middleware import JsonRoute
from pyfast.server.openai_objects import quoted
from pyfast.server.schemas import RerankRequest, RerankResponse, RetrieveRequest, RetrieveResponse
from pyfast.server.service import Service

router = APIRouter(tags=["search"], route_class=JsonRoute)


@router.post("/v1/retrieve", response_model=RetrieveResponse)
async def retrieve(asked: RetrieveRequest, request: Request) -> Response:
    """Return the best passages for a query."""
    service: Service = request.app.state.service
    _check(asked.query, asked.k, service, "k")
    name = service.first if asked.index is None else asked.index
    engine = service.engine(name, only_searches=True)
    conditions = service.narrowed(asked, request.scope["api_key"])
    async with asyncio.timeout(service.limits.seconds), engine.view(conditions) as view:
        work = engine.retrieve(asked.query, asked.k, filter=view, documents=asked.documents)
        passages = await unless_gone(work, request.receive)
    results = [{"uri": one.uri, "title": view.title(one.uri), **quoted(one)} for one in passages]
    body = {"object": "list", "index": name, "results": results}
    return Response(dumps(body), media_type="application/json")


@router.post("/v1/rerank", response_model=RerankResponse)
async def rerank(asked: RerankRequest, request: Request) -> Response:
    """Rank documents by `bridge_rank`, best first. The request's field `model` is ignored."""
    service: Service = request.app.state.service
    _check(asked.query, len(asked.documents), service, "documents")
    texts = [one if isinstance(one, str) else one.text for one in asked.documents]
    async with asyncio.timeout(service.limits.seconds):
        scores = await asyncio.to_thread(rerank_texts, asked.query, texts)
    best = sorted(range(len(texts)), key=lambda place: -scores[place])[: asked.top_n]
    results = [
        {"index": place, "relevance_score": scores[place]}
        | ({"document": {"text": texts[place]}} if asked.return_documents else {})
        for place in best
    ]
    body = {"id": f"rerank-{uuid4().hex}", "model": "bridge_rank", "results": results}
    return Response(dumps(body), media_type="application/json")


def _check(query: str, count: int, service: Service, param: str) -> None:
    limits = service.limits
    if len(query) > limits.question_chars:
        fault = f"the query is longer than {limits.question_chars} characters"
        raise ApiError(400, fault, "query_too_long", param="query")
    if count > limits.documents:
        raise ApiError(400, f"{param}: expected at most {limits.documents}", "too_many", param=param)
