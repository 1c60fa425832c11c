"""The batches of questions behind the path `/v1/batches`, and the files behind `/v1/files`. Each batch has a
folder with a run, which outlives the server.

If the server ends before a batch is finished, the batch continues when the server starts again. No LLM call that
got a reply is repeated, because the run's journal contains every completion.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import time
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextvars import Context
from dataclasses import asdict
from hashlib import blake2b
from operator import attrgetter
from pathlib import Path
from secrets import token_hex
from typing import Any, BinaryIO

import orjson
from pydantic import ValidationError

import pyfast.server.schemas as schemas
from pyfast.api.run import Run
from pyfast.engine import Event, Ledger, Record
from pyfast.engine.configuration import CONFIGURATION
from pyfast.errors import InputError, LLMUnavailableError, OtherRunError, PyfastError, RunInUseError
from pyfast.server.errors import ApiError
from pyfast.server.limits import ApiKey
from pyfast.server.openai_objects import Titles, completion, failure
from pyfast.server.service import Service, conversation
from pyfast.systems import load_system
from pyfast.utils.files import make_folder, only_writer, write_atomically, written_aside
from pyfast.utils.log import LOG
from pyfast.utils.options import RunOptions
from pyfast.utils.text_forms import some

_MANY = 100  # the maximum number of faults of an input to report
_PATIENCE_MINUTES = 7 * 24 * 60.0  # how long a batch waits for an LLM that does not answer
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0  # before retrying a batch that could not continue
_OPEN = ("validating", "in_progress", "finalizing", "cancelling")
_ID = re.compile(r"file-[0-9a-f]{32}")
_LINE = ("custom_id", "method", "url", "body")
_BATCH = re.compile(r"batch_[0-9a-f]{32}")
_CANCELLING = "cancelling"  # The file that says when a batch was cancelled.
_LOOKS_S = 1.0  # seconds between two checks for this file, which another server may write


class Files:
    """The clients' files, in a folder. A file's content is stored under the name `ID`, and its metadata under
    `ID.json`."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder, self._limit = folder, limit
        make_folder(folder)
        folder.chmod(0o700)  # Like those in a run's folder, the questions and answers are private.
        # Uploads that a killed server was receiving are deleted. Those of another server are locked.
        for part in folder.glob(".*.part"):
            with contextlib.suppress(BlockingIOError, FileNotFoundError), part.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                part.unlink()

    @contextlib.contextmanager
    def new(self) -> Iterator[BinaryIO]:
        """Open a new file. In the `with` block, the caller writes an upload to it and then passes it to `add`, or
        else the file is deleted. Raises `ApiError` if there are too many files."""
        if sum(1 for _ in self._folder.glob("*.json")) >= self._limit:
            raise ApiError(400, f"the server is full ({self._limit} files); delete some of them", "too_many_files")
        path = self._folder / f".{token_hex(16)}.part"
        with path.open("wb") as out:
            try:
                fcntl.flock(out, fcntl.LOCK_EX)
                yield out
            finally:
                path.unlink(missing_ok=True)  # `add` has given it another name, unless something failed.

    async def add(self, content: BinaryIO, filename: str) -> schemas.FileObject:
        """Add a finished upload by moving `content`, which comes from `new`, to a new id."""
        content.flush()
        await asyncio.to_thread(os.fsync, content.fileno())
        path = self.path(f"file-{token_hex(16)}")
        os.rename(content.name, path)
        try:
            return self.note(path, int(time.time()), filename, "batch")
        except OSError:
            path.unlink()
            raise

    def note(self, path: Path, created_at: int, filename: str, purpose: schemas.Purpose) -> schemas.FileObject:
        """Register a file whose content is already in the folder."""
        told: dict[str, Any] = {"id": path.name, "bytes": path.stat().st_size, "object": "file"}
        told |= {"created_at": created_at, "filename": filename, "purpose": purpose, "status": "processed"}
        made = schemas.FileObject(**told)
        write_atomically(self._folder / f"{path.name}.json", made.model_dump_json(), durable=True)
        return made

    def all(self) -> list[schemas.FileObject]:
        """Return the metadata of all files, newest first."""
        files = [schemas.FileObject.model_validate_json(path.read_bytes()) for path in self._folder.glob("*.json")]
        return sorted(files, key=lambda file: (-file.created_at, file.id))

    def get(self, id: str) -> schemas.FileObject:
        """Return the metadata of a file. Raises `ApiError` 404 if no file has this id."""
        if _ID.fullmatch(id):
            with contextlib.suppress(FileNotFoundError):
                return schemas.FileObject.model_validate_json((self._folder / f"{id}.json").read_bytes())
        raise ApiError(404, f"there is no file {id!r}", "file_not_found")

    def path(self, id: str) -> Path:
        """Return the path of a file's content."""
        return self._folder / id

    def delete(self, id: str) -> None:
        """Delete a file. Raises `ApiError` 404 if no file has this id."""
        name = self.get(id).id
        (self._folder / f"{name}.json").unlink(missing_ok=True)
        (self._folder / name).unlink(missing_ok=True)


class Batches:
    """A server's batches, in a folder. Those of a key with a filter are kept separate. While another server with
    the same folder works on a batch, this one waits."""

    def __init__(self, folder: Path, service: Service, grace: float, key: ApiKey, turn: asyncio.Lock) -> None:
        """Create the batches of one key. The batch in progress holds `turn`, so that the server works on one batch
        at a time."""
        self.files = Files(folder / "files", service.limits.files)
        self._folder = folder / "batches"
        make_folder(self._folder)
        for own in (self._folder, *((folder, folder.parent) if key.room else ())):  # jobs/keys/NAME, jobs/keys
            own.chmod(0o700)
        self.service, self._key, self._turn = service, key, turn
        self._grace = grace  # seconds that questions in progress may take once the server ends
        self._ending = asyncio.Event()
        self._stops: dict[str, asyncio.Event] = {}
        self._known: dict[str, schemas.BatchObject] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Work on unfinished batches while the `with` block runs. A batch that is unfinished at the end of the
        block continues in the next one, for example when the server starts again.
        """
        for path in sorted(self._folder.glob("*/batch.json"), key=lambda path: path.stat().st_mtime):
            batch = schemas.BatchObject.model_validate_json(path.read_bytes())
            self._know(await self._counted(batch) if batch.status in _OPEN else batch)
        try:
            yield
            self._ending.set()
            for stop in self._stops.values():
                stop.set()
            if self._tasks and self.service.started.is_set():  # Otherwise they wait for the LLM.
                LOG.info("waiting at most %g s for the batches' questions in progress", self._grace)
                await asyncio.wait(self._tasks, timeout=self._grace)
            if unfinished := [id for id, batch in self._known.items() if batch.status in _OPEN]:
                LOG.info("a server with this --jobs folder will continue these batches: %s", some(unfinished))
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _counted(self, batch: schemas.BatchObject) -> schemas.BatchObject:
        """Return a batch with the counts of its run, if this has started."""
        folder = self._folder / batch.id
        try:
            counts = await asyncio.to_thread(_counts, batch, folder) if _has_run(folder) else batch.request_counts
            return batch.model_copy(update={"request_counts": counts})
        except (PyfastError, OSError) as error:
            LOG.error("%s: its progress cannot be read: %s", batch.id, error)
            return batch

    def create(self, asked: schemas.BatchRequest, key: str | None) -> schemas.BatchObject:
        """Start a batch. If a batch was already started with this `key` (an `Idempotency-Key`), return the
        earlier batch.

        Raises `ApiError` if no file has the id `input_file_id`, or if the earlier batch has different arguments.
        """
        id = f"batch_{token_hex(16) if key is None else _digest(key)}"
        told = attrgetter("endpoint", "input_file_id", "metadata")
        if (before := self._find(id)) is not None:
            if told(before) != told(asked):
                raise ApiError(409, "this Idempotency-Key belongs to a different request", "key_reused")
            return before
        self.files.get(asked.input_file_id)
        fields = {**dict.fromkeys(schemas.BatchObject.model_fields), **asked.model_dump()}
        fields |= {"id": id, "created_at": int(time.time()), "status": "validating", "object": "batch"}
        fields["request_counts"] = schemas.RequestCounts(total=0, completed=0, failed=0)
        made = schemas.BatchObject(**fields)
        make_folder(self._folder / made.id)  # A killed server may have left it.
        self._keep(made)
        self._begin(made)
        return made

    def all(self) -> list[schemas.BatchObject]:
        """Return all batches, newest first."""
        return sorted(self._known.values(), key=lambda batch: (-batch.created_at, batch.id))

    def get(self, id: str) -> schemas.BatchObject:
        """Return a batch. Raises `ApiError` 404 if no batch has this id."""
        if (batch := self._find(id)) is None:
            raise ApiError(404, f"there is no batch {id!r}", "batch_not_found")
        return batch

    def _find(self, id: str) -> schemas.BatchObject | None:
        if id not in self._known and (stored := self._stored(id)) is not None:
            self._know(stored)  # Another server with the same folder has created it.
        return self._known.get(id)

    def _stored(self, id: str) -> schemas.BatchObject | None:
        """Read a batch from disk."""
        if _BATCH.fullmatch(id):
            with contextlib.suppress(FileNotFoundError):
                return schemas.BatchObject.model_validate_json((self._folder / id / "batch.json").read_bytes())
        return None

    def _know(self, batch: schemas.BatchObject) -> None:
        self._known[batch.id] = batch
        if batch.status in _OPEN:
            self._begin(batch)

    def cancel(self, id: str) -> schemas.BatchObject:
        """Cancel a batch, keeping its finished answers. Raises `ApiError` if no batch has this id or the batch has
        already ended, and `OSError` if the disk is full. Even then, the questions stop, but a restarted server
        continues the batch unless the client repeats the request."""
        batch = self.get(id)
        if batch.status in _OPEN and batch.status != "finalizing" and not self._ended_elsewhere(id):
            self._stop(id, now := int(time.time()))
            # Only the server that works on the batch may write its state, and that may be another one.
            write_atomically(self._folder / id / _CANCELLING, str(now), durable=True)
            stored = self._stored(id)
            if not self._ended_elsewhere(id) and stored is not None and stored.status == "finalizing":
                self._known[id] = stored  # That server may no longer look for the file.
                self._stops[id].clear()
        if self._known[id].status not in _OPEN:
            raise ApiError(409, f"the batch is {self._known[id].status}", "batch_ended")
        return self._known[id]

    def _set(self, id: str, **values: Any) -> None:
        """Give a batch new values, in memory only."""
        self._known[id] = self._known[id].model_copy(update=values)

    def _stop(self, id: str, since: int) -> None:
        self._set(id, status="cancelling", cancelling_at=since)
        self._stops[id].set()

    def _stop_if_cancelled(self, id: str) -> bool:
        """Stop a batch if a client cancelled it, at this server or another one. Return whether one did."""
        since = self._known[id].cancelling_at
        with contextlib.suppress(FileNotFoundError):
            since = int((self._folder / id / _CANCELLING).read_bytes())
        if since is not None:
            self._stop(id, since)
        return since is not None

    async def _watch(self, id: str) -> None:
        while not self._stop_if_cancelled(id):
            await asyncio.sleep(_LOOKS_S)

    def reads(self, file: str) -> bool:
        """Return whether an unfinished batch needs this file."""
        return any(batch.input_file_id == file and batch.status in _OPEN for batch in self._known.values())

    def _begin(self, batch: schemas.BatchObject) -> None:
        self._stops[batch.id] = asyncio.Event()
        self._stop_if_cancelled(batch.id)
        # The context is empty, because the batch's questions belong neither to the request that started the batch
        # nor to that request's span.
        task = asyncio.get_running_loop().create_task(self._work(batch.id), context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, id: str) -> None:
        """Work on a batch until it ends, or the server stops."""
        async with self._turn:
            if self.service.down:
                self._say(id, _WAITS_FOR_LLM)
            await self.service.started.wait()
            goes_on = await self._persist(id, self._answer)
        if not goes_on:  # Meanwhile the server works on other batches.
            while not self._stops[id].is_set():
                if await self._has_ended(id, _LONGEST_PAUSE_S):
                    return
            await self._persist(id, self._end)

    async def _persist(self, id: str, work: Callable[[str], Awaitable[bool]]) -> bool:
        """Work on a batch, trying again after a pause if something interrupts it, such as a full disk. Returns
        False if this server cannot continue the batch."""
        pause, is_told = _FIRST_PAUSE_S, False
        while not self._ending.is_set():
            try:
                try:
                    with self._alone(id) as is_open:
                        return not is_open or await work(id)
                except (PyfastError, OSError):
                    raise
                except Exception as error:
                    LOG.error("%s failed", id, exc_info=error)
                    self._fail(id, _fault("the server failed; the reason is in its log"))
                    break
            except RunInUseError as error:
                self._take_over(id)
                if self._known[id].status not in _OPEN:
                    break
                if not is_told:
                    LOG.info("%s waits: %s", id, error)
                is_told = True
                self._set(id, request_counts=(await self._counted(self._known[id])).request_counts)
                self._say(id, _OTHER_SERVER)
            except (PyfastError, OSError) as error:
                LOG.error("%s cannot continue: %s; the server tries again in %g s", id, error, pause)
                code = "llm_unavailable" if isinstance(error, LLMUnavailableError) else "interrupted"
                told = "the batch is interrupted, but the server will try again; the reason is in its log"
                self._say(id, _fault(told, code))
            if await self._has_ended(id, pause):
                break
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        return True

    async def _has_ended(self, id: str, seconds: float) -> bool:
        """Wait for a few seconds, or until the batch is cancelled or the server ends. Returns whether another
        server with the same folder has ended the batch."""
        stop = self._stops[id]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for((self._ending if stop.is_set() else stop).wait(), seconds)
        return self._ended_elsewhere(id)

    def _ended_elsewhere(self, id: str) -> bool:
        """Return whether another server with the same folder has ended a batch, and if so, take over its final
        state."""
        stored = self._stored(id)
        if has_ended := stored is not None and stored.status not in _OPEN:
            self._known[id] = stored
        return has_ended

    @contextlib.contextmanager
    def _alone(self, id: str) -> Iterator[bool]:
        """Keep other servers with the same folder from working on a batch in the `with` block. Yields whether the
        batch is unfinished. Raises `RunInUseError` if another server is working on it."""
        folder = self._folder / id

        def refuse() -> None:
            raise RunInUseError(f"another server is working on {folder}")

        with only_writer(folder, refuse):
            self._take_over(id)
            yield self._known[id].status in _OPEN

    def _take_over(self, id: str) -> None:
        """Take over the state of a batch that another server may have continued since this one read it. Only this
        one knows the counts, and whether there was a cancel request that could not be written."""
        before, stored = self._known[id], self._stored(id)
        if not self._ended_elsewhere(id) and stored is not None:
            counts = before.request_counts if before.model is not None else stored.request_counts
            since = before.cancelling_at or stored.cancelling_at
            kept = {"request_counts": counts, "errors": before.errors, "cancelling_at": since}
            self._known[id] = stored.model_copy(update=kept)
            self._stop_if_cancelled(id)

    async def _answer(self, id: str) -> bool:
        """Work on a batch until it ends, or the server stops. Returns False if its run was started with options
        that differ from this server's. Raises `PyfastError` or `OSError` if it may continue later."""
        if self._known[id].status == "finalizing":
            # A power cut may have destroyed files of the run. Resuming the run writes them again.
            with contextlib.suppress(InputError):
                return await self._end(id)
        try:
            await self._answer_run(id, self._folder / id)
        except RunInUseError:  # The previous server has not ended yet.
            raise
        except (ApiError, InputError) as error:
            if not _has_run(self._folder / id):
                self._fail(id, _fault(str(error)))
                return True
            changed = error.changed if isinstance(error, OtherRunError) else ()
            told = "%s waits until it is cancelled, or a server with its original options is running: %s"
            LOG.error(told, id, "; ".join(changed) or error)
            why = str(error) if isinstance(error, ApiError) else _in_words(changed)
            server = "a server with its original options"
            if any(line.startswith("index.") for line in changed):  # They may have been erased.
                server = "only a server whose index still has its documents"
            more = f"{server} continues it; to get the finished answers, cancel it"
            self._say(id, _fault(f"this server cannot continue the batch: {why}; {more}", "options_changed"))
            return False
        return True

    async def _end(self, id: str) -> bool:
        """Write the answers of a batch whose questions are finished, or that is cancelled."""
        title: Titles = _untitled
        async with contextlib.AsyncExitStack() as stack:
            with contextlib.suppress(ApiError, InputError):  # The index may no longer exist.
                _, index = self.service.resolve(_model(self._known[id]))
                view = await stack.enter_async_context(self.service.engine(index).view(self._key.filter))
                title = view.title
            await self._finish(id, title)
        return True

    async def _finish(self, id: str, title: Titles) -> None:
        outputs = await asyncio.to_thread(self._write_out, self._known[id], self._folder / id, title)
        # Check only now, because a server that cancels the batch later finds it finalizing.
        status: schemas.State = "cancelled" if self._stop_if_cancelled(id) else "completed"
        self._move(id, status, errors=None, **outputs)

    def _say(self, id: str, *faults: schemas.BatchFault) -> None:
        """Show clients why a batch cannot continue or, without a fault, that it continues. This is kept only in
        memory."""
        self._set(id, errors=schemas.BatchFaults(object="list", data=list(faults)) if faults else None)

    async def _answer_run(self, id: str, folder: Path) -> None:
        service = self.service
        questions, kept = folder / "questions.jsonl", folder / "settings.json"
        # A killed server may have written the questions without storing the fields that all lines share.
        if self._known[id].model is None:
            shared, faults = await asyncio.to_thread(self._read_in, self._known[id], questions)
            if faults:
                self._fail(id, *faults)
                return
            self._move(id, **shared)
        batch = self._known[id]
        system, index = service.resolve(_model(batch))
        if not kept.exists():  # A server started later with other settings continues with these.
            described = service.described_settings(system, batch.settings)
            write_atomically(kept, orjson.dumps(described), durable=True)
        settings = orjson.loads(kept.read_bytes())
        if self._known[id].status == "validating":
            self._move(id, "in_progress")
        engine = service.engine(index)
        async with engine.view((*self._key.filter, *(batch.filter or ()))) as view:
            watching = asyncio.create_task(self._watch(id))
            try:
                run = await engine.answer_run(
                    questions,
                    folder / "run",
                    system=load_system(system),
                    settings=settings,
                    options=RunOptions(outage=_PATIENCE_MINUTES),
                    on_event=lambda event: self._heard(id, event),
                    stop=self._stops[id],
                    filter=view,
                )
            finally:
                watching.cancel()
            done, failed = sum(run.status.states.values()), run.status.states.get("failed", 0)
            is_cancelled = self._stop_if_cancelled(id)
            if done < run.status.questions and not is_cancelled:
                return  # the server ends: the batch continues when it starts again
            counts = schemas.RequestCounts(total=run.status.questions, completed=done - failed, failed=failed)
            self._move(id, None if is_cancelled else "finalizing", request_counts=counts)
            await self._finish(id, view.title)

    def _heard(self, id: str, event: Event) -> None:
        """Count an event of a batch's run, so that clients see the progress. The counts are kept only in memory,
        because the run's files contain the same numbers."""
        counts = self._known[id].request_counts
        if event.kind == "answered" and event.record is not None:
            if self._known[id].errors is not None:
                self._say(id)
            system, _ = self.service.resolve(_model(self._known[id]))
            self.service.count(system, self._key, event.record.state, Ledger(**asdict(event.record.usage)))
            if event.record.state == "failed":
                counts.failed += 1
            else:
                counts.completed += 1
        elif event.kind == "started":
            counts.completed, counts.failed = event.done - event.failed, event.failed
            self._say(id)
        elif event.kind == "waiting":
            self._say(id, _WAITS_FOR_LLM)
        elif event.kind == "answering":
            self._say(id)

    def _fail(self, id: str, *faults: schemas.BatchFault) -> None:
        self._move(id, "failed", errors=schemas.BatchFaults(object="list", data=list(faults)))

    def _move(self, id: str, status: schemas.State | None = None, **values: Any) -> schemas.BatchObject:
        """Give a batch new values and a new state, stamped with the current time."""
        if status is not None:
            values |= {"status": status, f"{status}_at": int(time.time())}
        return self._keep(self._known[id].model_copy(update=values))

    def _keep(self, batch: schemas.BatchObject) -> schemas.BatchObject:
        write_atomically(self._folder / batch.id / "batch.json", batch.model_dump_json(), durable=True)
        self._known[batch.id] = batch
        return batch

    def _read_in(
        self, batch: schemas.BatchObject, questions: Path
    ) -> tuple[dict[str, Any], list[schemas.BatchFault]]:
        """Check a batch's input and write its questions. Returns (what all lines have in common and the number of
        questions, as fields of the batch; the errors in the input)."""
        faults: list[schemas.BatchFault] = []
        shared: dict[str, Any] = {}
        seen: set[str] = set()
        with (
            self.files.path(batch.input_file_id).open("rb") as lines,
            written_aside(questions, durable=True) as aside,
            aside.open("wb") as out,
        ):
            for number, line in enumerate(lines, 1):
                if line.isspace():
                    continue
                try:
                    custom_id, asked = self._line(line.removeprefix(BOM_UTF8), batch.endpoint)
                    conditions = [asked.filter] if isinstance(asked.filter, str) else asked.filter
                    common = {"model": asked.model, "filter": conditions, "settings": asked.settings}
                    if custom_id in seen:
                        raise ApiError(400, f"the custom_id {custom_id!r} occurs twice", "duplicate_custom_id")
                    for name in common:
                        if seen and common[name] != shared[name]:
                            fault = f"all lines must have the same {name}"
                            raise ApiError(400, fault, f"mismatched_{name}", param=name)
                except ApiError as error:
                    faults.append(_fault(str(error), error.code, number, error.param))
                    if len(faults) == _MANY:
                        break
                    continue
                seen.add(custom_id)
                shared = common
                question, _ = conversation(asked.messages, self.service.limits)
                written = {"id": custom_id, "question": question, "documents": asked.documents}
                out.write(orjson.dumps(written, option=orjson.OPT_APPEND_NEWLINE))
        if not faults and not seen:
            faults = [_fault("the file contains no lines", "empty_file")]
        if faults:
            questions.unlink()
        counts = schemas.RequestCounts(total=len(seen), completed=0, failed=0)
        return {**shared, "request_counts": counts}, faults

    def _line(self, line: bytes, endpoint: str) -> tuple[str, schemas.ChatRequest]:
        """Return (custom_id, request) for a line of the uploaded file. Raises `ApiError` if the line is not
        valid."""
        try:
            fields = orjson.loads(line)
        except orjson.JSONDecodeError:
            raise ApiError(400, "this line is not JSON", "invalid_json_line") from None
        custom_id = fields.get("custom_id") if isinstance(fields, dict) else None
        if not custom_id or not isinstance(custom_id, str):
            raise ApiError(400, "expected a custom_id that is a string", "missing_custom_id", param="custom_id")
        for name in fields:
            if name not in _LINE and fields[name] is not None:
                fault = f"{name}: there is no such field next to body; a line consists of {', '.join(_LINE)}"
                raise ApiError(400, fault, "invalid_request", param=name)
        if (fields.get("method"), fields.get("url")) != ("POST", endpoint):
            raise ApiError(400, f"expected the method POST and the url {endpoint}", "mismatched_url", param="url")
        try:
            # For Python values, pydantic would complain that they are not instances of a class.
            asked = schemas.ChatRequest.model_validate_json(orjson.dumps(fields.get("body")))
        except ValidationError as error:
            place, fault, field = schemas.fault_of(error.errors())
            where = f"body.{place}" if place else "body"
            raise ApiError(400, f"{where}: {fault}", "invalid_request", param=field) from None
        if self.service.read(asked, self._key).history:
            what = "a batch cannot contain conversations; send a single question"
            raise ApiError(400, what, "has_history", param="messages")
        return custom_id, asked

    def _write_out(self, batch: schemas.BatchObject, folder: Path, title: Titles) -> dict[str, Any]:
        """Write the two result files of a batch. `title` returns the titles of documents.

        One result file contains the answers, and the other the failed questions. Returns fields of the batch: the
        ids of the two files (`output_file_id` and `error_file_id`) and how many results they contain. An empty
        file is not written, and its id is None. A repeated call writes the same files.
        """
        # The journal may contain more answers, which a killed server had not written yet. If the run was
        # cancelled, nothing writes them any more.
        records, fields = Run(folder / "run").records, dict[str, Any](request_counts=_counts(batch, folder))
        for name in ("output_file_id", "error_file_id"):
            path = self.files.path(f"file-{_digest(f'{batch.id} {name}')}")
            with written_aside(path, durable=True) as aside, aside.open("wb") as out:
                for record in records:
                    if (record.state == "failed") == (name == "error_file_id"):
                        out.write(orjson.dumps(_result(batch, record, title), option=orjson.OPT_APPEND_NEWLINE))
            if path.stat().st_size:
                self.files.note(path, batch.created_at, f"{batch.id}_{name}.jsonl", "batch_output")
                fields[name] = path.name
            else:
                path.unlink()
                fields[name] = None
        return fields


def _result(batch: schemas.BatchObject, record: Record, title: Titles) -> dict[str, Any]:
    id, model = _digest(f"{batch.id} {record.id}"), _model(batch)
    if record.state == "failed":
        status, body = 422, failure(record).body()
    else:
        status, body = 200, completion(f"chatcmpl-{id}", batch.created_at, model, record, title)
    response = {"status_code": status, "request_id": f"req_{id}", "body": body}
    return {"id": f"batch_req_{id}", "custom_id": record.id, "response": response, "error": None}


def _has_run(folder: Path) -> bool:
    """Return whether the run of a batch has started."""
    return (folder / "run" / CONFIGURATION).exists()


def _counts(batch: schemas.BatchObject, folder: Path) -> schemas.RequestCounts:
    """Count the written answers of a batch."""
    records = Run(folder / "run").records
    failed = sum(one.state == "failed" for one in records)
    return schemas.RequestCounts(total=batch.request_counts.total, completed=len(records) - failed, failed=failed)


_OTHER = {
    "system": "the code of the system is different",
    "llm": "the LLM is different",
    "index": "the documents have changed",
    "knowledge": "the knowledge graph has changed",
    "prompts": "the prompts have changed",
    "code": "the version of pyfast is different",
}


def _in_words(changed: Sequence[str]) -> str:
    """Tell a client what has changed since its batch began, from the lines of an `OtherRunError`. Only settings
    and budgets are named, because other values may reveal server internals."""
    said = []
    for line in changed:
        table, _, rest = line.partition(".")
        if table == "budget" or rest.startswith(("set_", "context_window ")):
            kind = {"budget": "budget ", "system": "setting "}.get(table, "")
            said.append(f"the {kind}{rest.removeprefix('set_')}")
        else:
            said.append(_OTHER.get(table, "the server's log says why"))
    return "; ".join(dict.fromkeys(said)) or "the server's log says why"


def _untitled(uri: str) -> str:
    return ""


def _model(batch: schemas.BatchObject) -> str:
    assert batch.model is not None
    return batch.model


def _digest(text: str) -> str:
    return blake2b(text.encode(errors="replace"), digest_size=16).hexdigest()


def _fault(
    message: str, code: str = "failed", line: int | None = None, param: str | None = None
) -> schemas.BatchFault:
    return schemas.BatchFault(code=code, line=line, message=message, param=param)


_OTHER_SERVER = _fault(
    "another server is working on the batch and knows its progress; when it stops, this server takes over",
    "other_server",
)
_WAITS_FOR_LLM = _fault("the LLM does not answer; the batch continues when it answers again", "llm_unavailable")
