"""The HTTP paths for files and batches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import FileResponse, Response
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect

from pyfast.server.batches import Batches
from pyfast.server.errors import ApiError, ClientLeft
from pyfast.server.middleware import limited_to, too_large
from pyfast.server.schemas import BatchList, BatchObject, BatchRequest, FileDeleted, FileList, FileObject

L = TypeVar("L", FileList, BatchList)
_ASIDE = 1 << 16  # how many bytes of an upload may lie outside the file

router = APIRouter(tags=["batches"])
_FORM = {
    "type": "object",
    "properties": {
        "file": {"type": "string", "contentMediaType": "application/octet-stream"},
        "purpose": {"type": "string", "enum": ["batch"]},
    },
    "required": ["file", "purpose"],
}
After = Annotated[
    str | None,
    Query(description="The id of the last item of the previous page. Default: the first page"),
]
Most = Annotated[int, Query(ge=1, le=10_000, description="The maximum number of items on the page")]


@router.post(
    "/v1/files",
    openapi_extra={"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _FORM}}}},
)
async def upload(request: Request) -> FileObject:
    """Upload a file with a batch's questions."""
    batches = _batches(request)
    limits = batches.service.limits
    limited = Request(request.scope, limited_to(limits.file_bytes, "file", request.receive, _ASIDE))
    try:
        async with asyncio.timeout(limits.seconds), limited.form(max_files=1, max_fields=8) as form:
            given, purpose = form.get("file"), form.get("purpose")
            if not isinstance(given, UploadFile) or purpose != "batch":
                raise ApiError(400, "send a file with the purpose `batch`", "invalid_request", param="file")
            if (given.size or 0) > limits.file_bytes:
                raise too_large("file", limits.file_bytes)
            with batches.files.new() as out:
                while piece := await given.read(1 << 20):
                    out.write(piece)
                return await batches.files.add(out, (given.filename or "")[:255])
    except MultiPartException as error:
        raise ApiError(400, error.message, "invalid_request") from None
    except ClientDisconnect:
        raise ClientLeft from None


@router.get("/v1/files")
async def files(request: Request, after: After = None, limit: Most = 10_000) -> FileList:
    """List the files, newest first, one page at a time."""
    return _page(FileList, _batches(request).files.all(), after, limit)


@router.get("/v1/files/{file_id}")
async def file(request: Request, file_id: str) -> FileObject:
    """Return the metadata of a file."""
    return _batches(request).files.get(file_id)


@router.get(
    "/v1/files/{file_id}/content", responses={200: {"content": {"application/jsonl": {}}}}, response_class=Response
)
async def content(request: Request, file_id: str) -> Response:
    """Return the content of a file."""
    files = _batches(request).files
    return FileResponse(files.path(files.get(file_id).id), media_type="application/jsonl")


@router.delete("/v1/files/{file_id}")
async def delete(request: Request, file_id: str) -> FileDeleted:
    """Delete a file. The status is 409 if an unfinished batch needs it."""
    batches = _batches(request)
    if batches.reads(file_id):
        raise ApiError(409, "an unfinished batch needs this file", "file_in_use")
    batches.files.delete(file_id)
    return FileDeleted(id=file_id, object="file", deleted=True)


@router.post("/v1/batches")
async def create(
    asked: BatchRequest, request: Request, idempotency_key: Annotated[str | None, Header(max_length=255)] = None
) -> BatchObject:
    """Start a batch. A second request with the same `Idempotency-Key` returns the first batch instead of starting
    another."""
    return _batches(request).create(asked, idempotency_key)


@router.get("/v1/batches")
async def batches(request: Request, after: After = None, limit: Most = 20) -> BatchList:
    """List the batches, newest first, one page at a time."""
    return _page(BatchList, _batches(request).all(), after, limit)


@router.get("/v1/batches/{batch_id}")
async def batch(request: Request, batch_id: str) -> BatchObject:
    """Return a batch with its progress."""
    return _batches(request).get(batch_id)


@router.post("/v1/batches/{batch_id}/cancel")
async def cancel(request: Request, batch_id: str) -> BatchObject:
    """Cancel a batch. Questions in progress finish, no others start, and all answers are kept."""
    return _batches(request).cancel(batch_id)


def _batches(request: Request) -> Batches:
    batches: Batches | None = request.app.state.batches.get(request.scope["api_key"].room)
    if batches is None:
        fault = "this server does not accept batches; to accept them, start it with --jobs FOLDER"
        raise ApiError(404, fault, "no_batches")
    return batches


def _page(kind: type[L], items: Sequence[Any], after: str | None, limit: int) -> L:
    ids = [one.id for one in items]
    start = ids.index(after) + 1 if after in ids else 0
    page = list(items[start : start + limit])
    first, last = (page[0].id, page[-1].id) if page else (None, None)
    return kind(object="list", data=page, first_id=first, last_id=last, has_more=start + limit < len(items))
