"""A model behind a provider's Batch API. The calls of all questions are collected into batches."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections import defaultdict, deque
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from pyfast.errors import (
    CallError,
    InputError,
    LLMUnavailableError,
    OutageError,
    PyfastError,
    RefusalError,
    TransportError,
)
from pyfast.llm.batch_provider import DUPLICATES, ENDPOINT, BatchOptions, BatchProvider, Line, faults_of
from pyfast.llm.chat import as_json, error_text, one_line
from pyfast.llm.openai import OpenAI, with_next
from pyfast.llm.protocol import LLM, PROBE, BatchLog, Completion, LoggedBatch, Progress, Request, take_options
from pyfast.llm.server_calls import Again, Refused, Unfit, parse_spec
from pyfast.utils.log import LOG

_LOOK_S = 0.05


@dataclass(slots=True, eq=False)
class _Call:
    """A call that waits for its batch."""

    name: str
    body: bytes
    joined: float
    place: asyncio.Future[_Place | None]
    """A future for the call's batch and its position in this batch, or for None if the call is to be sent as a
    normal request"""


@dataclass(slots=True, eq=False)
class _Batch:
    """A batch at the provider, and the task that waits for its results."""

    key: str
    is_adopted: bool = False
    """Whether an earlier session of the run made the batch"""
    status: str = ""
    has_answers: bool = False
    results: asyncio.Future[dict[int, Line]] = field(init=False)


_Place = tuple[_Batch, int]


class OpenAIBatches(OpenAI):
    """A model behind the Batch API of its provider. A run with this model can also be resumed without batches,
    with `openai:MODEL@URL`.

    pyfast submits the waiting calls as one batch if one of these is true:

    - All questions of the run wait for the LLM, and no new call has come for `quiet_s` seconds.
    - The oldest call has waited for `wait_s` seconds.
    - `max_calls` calls or `max_mb` megabytes wait.

    If one of these is true but at most `online_calls` calls wait, pyfast sends them as normal requests
    instead.

    If the provider does not carry out a call, the call joins the next batch. A call can be in at most
    `attempts` batches. If the provider is unreachable, pyfast keeps trying for `patience_s` seconds. pyfast polls
    the state of a batch at least every `poll_s` seconds. `settle_s` is the maximum number of seconds until the
    provider lists a batch that it has accepted. `questions_at_once` is the default number of questions in
    progress.
    """

    def __init__(self, spec: str, model: str, base_url: str, options: BatchOptions) -> None:
        super().__init__(spec, model, base_url, options)
        self.slots = options.max_calls
        self.questions_at_once = options.questions_at_once
        self._batching = options
        self._online_calls = options.online_calls or 0
        self._provider = BatchProvider(self._exchange, base_url, self._base_url, options)
        self._queue: list[_Call] = []
        self._collector: asyncio.Task[None] | None = None
        self._batches: set[_Batch] = set()
        self._submitted: dict[str, deque[_Place]] = defaultdict(deque)
        """The batches and positions of calls that earlier sessions of the run submitted, by call name"""
        self._progress: Progress | None = None
        """The progress of the run to which the calls belong"""
        self._log = BatchLog()

    @property
    def _name(self) -> str:
        """This model's name in the `BatchLog` of a run. It contains the provider's URL, because batches at another
        provider do not belong to this model."""
        return f"{self.fingerprint}@{self._base_url}"

    async def start(self) -> None:
        """Check that the provider answers and lists its batches. Raises `LLMUnavailableError` if it does not
        answer, and `InputError` if it lists no batches."""
        await super().start()
        if not self._batching.accept_duplicates:
            try:
                await self._provider.check_list()
            except BaseException:
                await self.close()
                raise

    async def join_run(self, progress: Progress, log: BatchLog) -> None:
        """Start collecting calls for a run. In the background, wait for the batches that earlier sessions of
        the run submitted. Raises `InputError` if another run uses this model."""
        if self._progress is not None:
            raise InputError(f"another run is using this object of {self.spec}; open another one for this run")
        self._progress, self._log = progress, log
        for logged in await log.load(self._name):
            if not logged.calls:
                continue
            batch = _Batch(logged.key, is_adopted=True)
            self._watch(batch, self._results_of_earlier(batch, logged))
            for place, name in logged.calls.items():
                self._submitted[name].append((batch, place))
        self._running()

    def leave_run(self) -> None:
        """Stop collecting calls for the run. The provider continues to work on its batches."""
        self._progress, self._log = None, BatchLog()
        self._submitted.clear()
        self._stop()

    async def close(self) -> None:
        """Close the connections. The provider continues to work on submitted batches."""
        self._stop()
        await super().close()

    def _stop(self) -> None:
        if self._collector is not None:
            self._collector.cancel()
            self._collector = None
        for batch in self._batches:
            batch.results.cancel()
        for call in self._queue:
            if not call.place.done():
                call.place.set_exception(LLMUnavailableError(f"{self.spec} was closed"))
        self._batches, self._queue = set(), []

    async def complete(self, request: Request) -> Completion:
        """Answer one request. Raises `CallError` if only this call failed, and `LLMUnavailableError` if the model
        no longer answers.
        """
        if request.embeds is not None:
            raise CallError("a Batch API accepts text, not embeddings")
        if request.messages == PROBE.messages:  # The sender of a probe waits only a few seconds.
            return await super().complete(request)
        asked = replace(request, max_tokens=request.max_tokens + self._options.reasoning_tokens)
        kept, failures = self._fallbacks.kept, 0
        fallbacks = kept
        while True:
            fields = self._body(asked, fallbacks)
            body = as_json(fields)
            earlier = self._submitted.get(request.call)
            place = earlier.popleft() if earlier else await self._enqueue(request.call, body)
            if place is None:
                try:
                    return await super().complete(request)
                except OutageError as error:
                    LOG.warning("%s; the remaining calls also go into batches", error)
                    self._online_calls = 0
                    continue
                except RefusalError as error:
                    raise await self._of_one_call(error, self._answered > -math.inf) from None
            batch = place[0]
            try:
                line = await self._line(*place)
            except asyncio.CancelledError:  # The call may be tried again, and is still in the batch.
                if request.call:
                    self._submitted[request.call].appendleft(place)
                raise
            try:
                completion = self._completion_in(line)
            except Unfit as unfit:
                completion = unfit.completion
            except Refused as refused:
                if not batch.is_adopted:
                    try:
                        fallbacks = with_next(fallbacks, refused, fields)
                    except RefusalError as error:
                        raise await self._of_one_call(error, batch.has_answers) from None
                continue
            except Again as again:
                failures += not batch.is_adopted  # The next session tries again.
                if failures >= self._options.attempts:
                    raise TransportError(f"{again.error} (the last of {failures} batches)") from None
                continue
            except RefusalError as error:
                if batch.is_adopted:
                    continue
                raise await self._of_one_call(error, batch.has_answers) from None
            self._fallbacks.learn(fields, fallbacks, fallbacks - kept, self._base_url)
            return self._counted(completion, len(body), asked.max_tokens)

    async def _of_one_call(self, refusal: RefusalError, others_succeed: bool) -> PyfastError:
        """Return the error for a refused call. If no other call has succeeded, a test call is sent as a normal
        request, because it could take long in a batch."""
        if not others_succeed:
            try:
                await super().complete(PROBE)
            except LLMUnavailableError:
                return LLMUnavailableError(str(refusal))
            except CallError:
                pass  # The server refused only this call, so it works.
        return refusal.of_this_call()

    def _completion_in(self, line: Line | None) -> Completion:
        """Return the completion in a result of a batch. `line` is None if the batch has no result for the call.
        Raises the error for a call without a completion."""
        if line is None or not line.status:
            reason = "no result" if line is None else error_text(line.body)
            raise Again(OutageError(f"{self._base_url}: the provider did not process a call in a batch: {reason}"))
        if not 200 <= line.status < 300:
            raise self._refused(line.status, {}, line.body)
        return self._reply(line.body)

    async def _enqueue(self, name: str, body: bytes) -> _Place | None:
        """Queue a call. Wait until it has a place in a batch, and return the batch and the position, or None if
        the call is to be sent as a normal request."""
        self._running()
        loop = asyncio.get_running_loop()
        call = _Call(name, body, loop.time(), loop.create_future())
        self._queue.append(call)
        if self._collector is None or self._collector.done():
            self._collector = loop.create_task(self._collect())
        return await call.place

    async def _line(self, batch: _Batch, place: int) -> Line | None:
        """Wait for the result of a call in a batch. Returns None if the batch has no result for it: the call
        may then be submitted again."""
        try:
            lines = await asyncio.shield(batch.results)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise LLMUnavailableError(f"{self.spec} was closed") from None
        line = lines.pop(place, None)
        if line is None and batch.status == "cancelled" and not batch.is_adopted:
            raise LLMUnavailableError(
                f"{self._base_url}: the batch was cancelled; to submit the remaining calls again, resume the run"
            )
        return line

    async def _collect(self) -> None:
        """Make batches of the queued calls until none is left."""
        while self._queue:
            await asyncio.sleep(_LOOK_S)
            # The calls that are done were cancelled.
            self._queue = [call for call in self._queue if not call.place.done()]
            if self._queue and self._is_due():
                calls = self._taken()
                if len(calls) <= self._online_calls:
                    for call in calls:
                        call.place.set_result(None)
                else:
                    batch = _Batch(secrets.token_hex(16))
                    self._watch(batch, self._results_of_new(batch, calls))
                    for place, call in enumerate(calls):
                        call.place.set_result((batch, place))

    def _is_due(self) -> bool:
        now, options = asyncio.get_running_loop().time(), self._batching
        if len(self._queue) >= options.max_calls or now - self._queue[0].joined >= options.wait_s:
            return True
        if sum(len(call.body) for call in self._queue) >= options.max_mb * 1e6:
            return True
        nobody_can_go_on = self._progress is None or self._progress.all_wait
        return nobody_can_go_on and now - self._queue[-1].joined >= options.quiet_s

    def _taken(self) -> list[_Call]:
        """Remove the next batch's calls from the queue, and return them in the order of arrival."""
        size, count = 0, 0
        for call in self._queue[: self._batching.max_calls]:
            size += len(call.body)
            if count and size > self._batching.max_mb * 1e6:
                break
            count += 1
        taken, self._queue = self._queue[:count], self._queue[count:]
        return taken

    def _watch(self, batch: _Batch, work: Coroutine[Any, Any, dict[int, Line]]) -> None:
        batch.results = asyncio.ensure_future(work)
        self._batches.add(batch)

        def ended(results: asyncio.Future[dict[int, Line]]) -> None:
            self._batches.discard(batch)
            if not results.cancelled():
                results.exception()  # Read the exception, because the waiting callers may be gone.

        batch.results.add_done_callback(ended)

    async def _results_of_new(self, batch: _Batch, calls: Sequence[_Call]) -> dict[int, Line]:
        """Submit a batch, and wait for its results. Before the batch is submitted, its key is stored in the
        `BatchLog` of the run."""
        content = b"".join(_line_of(batch.key, place, call.body) for place, call in enumerate(calls))
        LOG.info("%s: new batch (calls: %d, %.1f MB)", self._base_url, len(calls), len(content) / 1e6)
        file = await self._provider.upload(f"pyfast-{batch.key}.jsonl", content)
        names = {place: call.name for place, call in enumerate(calls)}
        logged = LoggedBatch(batch.key, None, time.time(), names)
        for call in calls:
            call.body = b""
        await self._log.add(self._name, logged)
        id, keeps_key = await self._provider.create(batch.key, file)
        await self._log.identify(batch.key, id)
        if not keeps_key and not self._batching.accept_duplicates:
            try:
                await self._provider.cancel(id)
            except (Refused, CallError, LLMUnavailableError) as error:
                LOG.warning("%s: batch %s cannot be cancelled: %s", self._base_url, id, error)
            raise InputError(f"{self._base_url} does not store the metadata of a batch, {DUPLICATES}")
        return await self._results(batch, id)

    async def _results_of_earlier(self, batch: _Batch, logged: LoggedBatch) -> dict[int, Line]:
        """Wait for the results of a batch of an earlier session. If that session did not submit the batch,
        the result is empty."""
        id = logged.id
        if id is None:
            try:
                id = await self._provider.adopt(logged.key)
            except (CallError, LLMUnavailableError):
                if not self._batching.accept_duplicates:
                    raise
            if id is None:
                await self._log.remove(logged.key)
                return {}
            await self._log.identify(logged.key, id)
        LOG.info("%s: earlier batch %s (calls: %d)", self._base_url, id, len(logged.calls))
        return await self._results(batch, id)

    async def _results(self, batch: _Batch, id: str) -> dict[int, Line]:
        ended = await self._provider.ended(id)
        batch.status = ended["status"]
        if batch.status == "failed":
            await self._log.remove(batch.key)
            failed = f"{self._base_url}: batch {id} failed: {one_line(faults_of(ended))}"
            if not batch.is_adopted:
                raise LLMUnavailableError(failed)
            LOG.warning("%s; its calls are submitted again", failed)
            return {}
        lines = await self._provider.lines(ended, batch.key)
        batch.has_answers = any(line.status == 200 for line in lines.values())
        return lines


def open_batches(rest: str, **options: Any) -> LLM:
    """Open `batch:MODEL@URL`. Raises `InputError` if the text has another form."""
    try:
        model, base_url = parse_spec(f"openai:{rest}")
    except InputError as error:
        raise InputError(str(error).replace("openai:", "batch:")) from None
    return OpenAIBatches(f"batch:{rest}", model, base_url, take_options("batch", BatchOptions, **options))


def _line_of(key: str, place: int, body: bytes) -> bytes:
    """Return a call's line in the batch file. `key` is pyfast's key for the batch, and `place` is the call's
    position in the batch."""
    call = {"custom_id": f"{key}-{place}", "method": "POST", "url": ENDPOINT, "body": orjson.Fragment(body)}
    return orjson.dumps(call, option=orjson.OPT_APPEND_NEWLINE)
