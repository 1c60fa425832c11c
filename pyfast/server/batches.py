"""The batches of questions behind the path `/v1/batches`. Each batch has a folder with a run. The folder
stays when the server ends.

    JOBS/files           the uploads, and the results of batches
    JOBS/batches/ID      batch.json, the questions, and the run

If the server ends before a batch has ended, the batch continues when the server starts again. It repeats no
LLM call that had a reply, because the run's journal has every completion.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from contextvars import Context
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal

import orjson
from pydantic import ValidationError

from pyfast import Record, Run
from pyfast.engine import Event
from pyfast.errors import InputError, PyfastError, first_fault
from pyfast.files import write_atomically, written_aside
from pyfast.options import RunOptions
from pyfast.server.completions import completion, failure
from pyfast.server.errors import ApiError
from pyfast.server.files import File, Files
from pyfast.server.schemas import ChatRequest
from pyfast.server.service import Service

ENDPOINT = "/v1/chat/completions"
_MANY = 100  # faults of an input that are reported
_PATIENCE_MINUTES = 7 * 24 * 60.0  # for an LLM that answers nobody
_LOG = logging.getLogger("pyfast")
State = Literal["validating", "failed", "in_progress", "finalizing", "completed", "cancelling", "cancelled"]
_OPEN = ("validating", "in_progress", "finalizing", "cancelling")


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch, with the fields of OpenAI's API."""

    id: str
    endpoint: str
    input_file_id: str
    completion_window: str
    created_at: int
    metadata: dict[str, str] | None
    status: State = "validating"
    model: str | None = None
    errors: dict[str, Any] | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    in_progress_at: int | None = None
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    request_counts: dict[str, int] = field(default_factory=lambda: {"total": 0, "completed": 0, "failed": 0})
    object: str = "batch"

    def moved(self, status: State, **values: Any) -> Batch:
        """Return the batch with a new state. The current time becomes the time of this state."""
        entered: dict[str, Any] = {f"{status}_at": int(time.time())}
        return replace(self, status=status, **entered, **values)


class Batches:
    """The batches of a server, in a folder that no other process uses."""

    def __init__(self, folder: Path, service: Service, grace: float = 30.0) -> None:
        self.files = Files(folder / "files", service.limits.files)
        self._folder = folder / "batches"
        self._folder.mkdir(exist_ok=True)
        self.service = service
        self._grace = grace  # seconds that questions in progress may take when the server ends
        self._ending = False
        self._stops: dict[str, asyncio.Event] = {}
        self._known: dict[str, Batch] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()  # one batch at a time: requests that wait for an answer share the LLM with it

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Work on unfinished batches while the `with` block runs. If a batch is not finished at the end of
        the block, it continues in the next `with` block, for example when the server starts again.
        """
        for path in sorted(self._folder.glob("*/batch.json"), key=lambda path: path.stat().st_mtime):
            batch = Batch(**orjson.loads(path.read_bytes()))
            self._known[batch.id] = batch
            if batch.status in _OPEN:
                self._begin(batch)
        try:
            yield
            self._ending = True
            for stop in self._stops.values():
                stop.set()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=self._grace)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def create(
        self, input_file_id: str, endpoint: str, window: str, metadata: dict[str, str] | None, key: str | None
    ) -> Batch:
        """Start a batch. If a batch was already started with this `key` (an `Idempotency-Key`), return the
        earlier batch.

        Raises `ApiError` if no file has the id `input_file_id`, or if the earlier batch has other arguments.
        """
        name = token_hex(16) if key is None else blake2b(key.encode(errors="replace"), digest_size=16).hexdigest()
        made = Batch(f"batch_{name}", endpoint, input_file_id, window, int(time.time()), metadata)
        before = self._known.get(made.id)
        if before is not None:
            if (before.endpoint, before.input_file_id, before.metadata) != (endpoint, input_file_id, metadata):
                raise ApiError(409, "this Idempotency-Key began another batch", "key_reused")
            return before
        self.files.get(input_file_id)
        (self._folder / made.id).mkdir()
        self._keep(made)
        self._begin(made)
        return made

    def all(self) -> list[Batch]:
        """Return all batches, the newest first."""
        return sorted(self._known.values(), key=lambda batch: (-batch.created_at, batch.id))

    def get(self, id: str) -> Batch:
        """Return a batch. Raises `ApiError` 404 if no batch has this id."""
        if id not in self._known:
            raise ApiError(404, f"there is no batch {id!r}", "batch_not_found")
        return self._known[id]

    def cancel(self, id: str) -> Batch:
        """Cancel a batch. Its finished answers are kept. Raises `ApiError` if no batch has this id, or if the
        batch has already ended."""
        batch = self.get(id)
        if batch.status not in _OPEN:
            raise ApiError(409, f"the batch is {batch.status}", "batch_ended")
        if batch.status in ("validating", "in_progress"):
            batch = self._keep(batch.moved("cancelling"))
            self._stops[id].set()
        return batch

    def reads(self, file: str) -> bool:
        """Return whether an unfinished batch needs this file."""
        return any(batch.input_file_id == file and batch.status in _OPEN for batch in self._known.values())

    def _begin(self, batch: Batch) -> None:
        self._stops[batch.id] = asyncio.Event()
        if batch.status == "cancelling":
            self._stops[batch.id].set()
        # Its questions are no part of the request that began it, nor of that one's span.
        task = asyncio.get_running_loop().create_task(self._work(batch.id), context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, id: str) -> None:
        """Work on a batch until it ends, or the server stops."""
        stop, folder = self._stops[id], self._folder / id
        async with self._turn:
            if self._ending:
                return
            try:
                await self._answer(id, folder, stop)
            except ApiError as error:
                self._fail(id, error.message)
            except InputError as error:
                self._fail(id, str(error))
            except PyfastError as error:  # it can be continued when the server starts again
                _LOG.error("%s stopped: %s; the server continues it when it starts again", id, error)
            except Exception as error:
                _LOG.error("%s failed", id, exc_info=error)
                self._fail(id, "the server failed; its log says why")

    async def _answer(self, id: str, folder: Path, stop: asyncio.Event) -> None:
        service = self.service
        questions = folder / "questions.jsonl"
        if not questions.exists():
            read, count, faults = await asyncio.to_thread(self._read_in, self._known[id], questions)
            if faults:
                self._keep(self._known[id].moved("failed", errors={"object": "list", "data": faults}))
                return
            counts = {"total": count, "completed": 0, "failed": 0}
            self._keep(replace(self._known[id], model=read, request_counts=counts))
        model = self._known[id].model
        assert model is not None
        system, index = service.resolve(model)
        if self._known[id].status == "validating":
            self._keep(self._known[id].moved("in_progress"))
        if self._known[id].status != "finalizing":
            run = await service.engine(index)[1].answer_run(
                questions,
                folder / "run",
                system=system,
                settings=service.systems[system],
                options=RunOptions(outage=_PATIENCE_MINUTES),
                on_event=lambda event: self._heard(id, event),
                stop=stop,
            )
            states = run.status.states
            failed = states.get("failed", 0)
            counts = {"total": run.status.questions, "completed": sum(states.values()) - failed, "failed": failed}
            if sum(states.values()) < run.status.questions and self._known[id].status != "cancelling":
                return  # the server ends: it goes on when that starts again
            ends: State = "cancelling" if self._known[id].status == "cancelling" else "finalizing"
            self._keep(replace(self._known[id].moved(ends), request_counts=counts))
        outputs = await asyncio.to_thread(self._write_out, self._known[id], folder)
        ended: State = "cancelled" if self._known[id].status == "cancelling" else "completed"
        self._keep(self._known[id].moved(ended, **outputs))

    def _heard(self, id: str, event: Event) -> None:
        """Count an event of a batch's run, so that clients see the progress. The counts are only in memory,
        because the files of the run have the same numbers."""
        batch = self._known[id]
        counts = dict(batch.request_counts)
        if event.kind == "answered" and event.record is not None:
            counts["failed" if event.record.state == "failed" else "completed"] += 1
        elif event.kind == "started":
            counts |= {"completed": event.done, "failed": 0}  # those of earlier sessions are separated at the end
        self._known[id] = replace(batch, request_counts=counts)

    def _fail(self, id: str, fault: str) -> None:
        errors = {"object": "list", "data": [{"code": "failed", "line": None, "message": fault, "param": None}]}
        self._keep(self._known[id].moved("failed", errors=errors))

    def _keep(self, batch: Batch) -> Batch:
        self._known[batch.id] = batch
        write_atomically(self._folder / batch.id / "batch.json", orjson.dumps(asdict(batch)), durable=True)
        return batch

    def _read_in(self, batch: Batch, questions: Path) -> tuple[str, int, list[dict[str, Any]]]:
        """Check a batch's input and write its questions.

        Returns (the model, the number of questions, the errors in the input).
        """
        faults: list[dict[str, Any]] = []
        models: set[str] = set()
        seen: set[str] = set()
        with (
            self.files.path(batch.input_file_id).open("rb") as lines,
            written_aside(questions, durable=True) as aside,
        ):
            with aside.open("wb") as out:
                for number, line in enumerate(lines, 1):
                    if line.isspace():
                        continue
                    try:
                        custom_id, model, question = self._line(line, batch.endpoint)
                        if custom_id in seen:
                            raise ApiError(400, f"the custom_id {custom_id!r} came before", "duplicate_custom_id")
                        if models and model not in models:
                            raise ApiError(400, "all lines need the same model", "mismatched_model", param="model")
                    except ApiError as error:
                        fault = {
                            "line": number,
                            "code": error.code,
                            "message": error.message,
                            "param": error.param,
                        }
                        faults.append(fault)
                        if len(faults) == _MANY:
                            break
                        continue
                    seen.add(custom_id)
                    models.add(model)
                    out.write(orjson.dumps({"id": custom_id, "question": question}) + b"\n")
            if not faults and not seen:
                faults = [{"line": None, "code": "empty_file", "message": "no line", "param": None}]
        if faults:
            questions.unlink()
            return "", 0, faults
        return models.pop(), len(seen), []

    def _line(self, line: bytes, endpoint: str) -> tuple[str, str, str]:
        """Return (custom_id, model, question) of a line of the uploaded file. Raises `ApiError` if the line
        is not valid."""
        try:
            fields = orjson.loads(line)
        except orjson.JSONDecodeError:
            raise ApiError(400, "not JSON", "invalid_json_line") from None
        if (
            not isinstance(fields, dict)
            or not isinstance(custom_id := fields.get("custom_id"), str)
            or not custom_id
        ):
            raise ApiError(400, "needs a custom_id, a text", "missing_custom_id", param="custom_id")
        if (fields.get("method"), fields.get("url")) != ("POST", endpoint):
            raise ApiError(400, f"needs the method POST and the url {endpoint}", "mismatched_url", param="url")
        try:
            asked = ChatRequest.model_validate(fields.get("body"))
        except ValidationError as error:
            name, fault = first_fault(error)
            raise ApiError(400, f"body.{name}: {fault}", "invalid_request", param=name) from None
        read = self.service.read(asked)
        if read.history:
            raise ApiError(400, "a batch has no conversations: give one question", "has_history", param="messages")
        return custom_id, asked.model, read.question

    def _write_out(self, batch: Batch, folder: Path) -> dict[str, str | None]:
        """Write the two result files of a batch.

        One result file has the answers, and the other has the failed questions. Returns the ids of the two
        files, as the batch's fields `output_file_id` and `error_file_id`. If a file would be empty, there is
        no file, and its id is None. A repeated call writes the same files.
        """
        ids: dict[str, str | None] = {}
        run = Run(folder / "run")
        for name in ("output_file_id", "error_file_id"):
            wants_failed = name == "error_file_id"
            digest = blake2b(f"{batch.id} {name}".encode(), digest_size=16).hexdigest()
            path = self.files.path(f"file-{digest}")
            count = 0
            with written_aside(path, durable=True) as aside, aside.open("wb") as out:
                for record in run.records:
                    if (record.state == "failed") == wants_failed:
                        out.write(orjson.dumps(self._result(batch, record)) + b"\n")
                        count += 1
            ids[name] = path.name if count else None
            if count:
                made = File(
                    path.name, path.stat().st_size, batch.created_at, f"{batch.id}_{name}.jsonl", "batch_output"
                )
                self.files.note(made)
            else:
                path.unlink()
        return ids

    def _result(self, batch: Batch, record: Record) -> dict[str, Any]:
        assert batch.model is not None
        id = blake2b(f"{batch.id} {record.id}".encode(errors="replace"), digest_size=16).hexdigest()
        if record.state == "failed":
            status, body = 422, failure(record).body()
        else:
            title = self.service.titles(self.service.resolve(batch.model)[1])
            status, body = 200, completion(f"chatcmpl-{id}", batch.created_at, batch.model, record, title)
        response = {"status_code": status, "request_id": f"req_{id}", "body": body}
        return {"id": f"batch_req_{id}", "custom_id": record.id, "response": response, "error": None}
