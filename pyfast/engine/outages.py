"""Outages: periods in which an LLM does not answer. Calls wait for the outage to end, and nothing is lost.

A call can fail in transit for two reasons: there is an outage, or something is wrong with this call. If other
calls succeed, there is no outage. If no other call was answered recently, pyfast sends a small test call, the
probe. During an outage, all calls wait, no question starts, and the questions' clocks stop, while pyfast sends one
probe after another until the LLM answers. If a call fails several times while other calls succeed, only its
question fails. The same holds for a call that the server refuses (as a gateway refuses a forbidden prompt) while
it answers the probe.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, NoReturn

from pyfast.engine.budget import within
from pyfast.errors import CallError, LLMUnavailableError, OutageError, RefusalError, RunError, TransportError
from pyfast.llm import LLM, Completion, Request
from pyfast.llm.protocol import PROBE

THE_LLM = "the LLM"
_PROBES_S = 2.0, 8.0, 20.0
"""How many seconds pyfast waits after each of up to three probes. A probe may be lost, so if none is answered by
then, pyfast sends the next one, unless the LLM's client is already retrying a probe after an error. After the
third wait, the LLM counts as unreachable"""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 15.0
_FAULTS = {"down": 3, "busy": 10, "slow": 2}
"""After how many failures, by kind, pyfast gives up on a call while other calls succeed. The number for `busy` is
larger, because a busy server refuses some calls and answers others"""
_REFUSED_PROBES = 2
"""How many times pyfast repeats a refused probe"""
_AT_ONCE_S = 2.0
"""If a probe is answered within this many seconds, there is no outage"""
_LATE = 2
"""How many failures of a call count as a short outage if the probe is answered late. Further ones count against
the call"""
_FELLED = 3
"""If the LLM goes down this many times while working on one call alone, this call counts as the cause"""
_CHECK_S = 2.0
"""How many seconds must pass after a failed call or probe before a probe that no call is waiting for. If the LLM
asks for a longer pause, it applies instead"""
_FAILED_IN_A_ROW = 3
"""How many consecutive questions may have calls that fail in transit while the LLM answers only probes. After many
answered calls, the limit is a fifth of their number
"""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A current outage, whose end the run is waiting for."""

    since: float
    """When the outage started, in seconds since the epoch"""
    reason: str
    llm: str = THE_LLM
    """The name of the LLM, if the run has several LLMs"""


@dataclass(slots=True, eq=False)
class Clock:
    """The clock of a question's time limit, if it has one. The clock stops during outages. While an LLM call runs,
    asyncio's timeout is off, and the call itself checks whether the time is up."""

    timeout: asyncio.Timeout | None
    counted: float
    """The event loop time up to which outages have already postponed `ends`, so that simultaneous outages of two
    LLMs do not count twice"""
    ends: float
    """When the question's time is up, as an event loop time; infinite without a time limit"""
    stops: int = 0
    """How many running LLM calls and outages keep the clock stopped"""

    def stop(self, by: int) -> None:
        """Add `by`, which may be negative, to the number of reasons for the clock to stand still. The clock runs
        while this number is 0."""
        self.stops += by
        if self.timeout is not None:
            with contextlib.suppress(RuntimeError):  # The time is up, or the question has ended.
                self.timeout.reschedule(None if self.stops else self.ends)


class Clocks:
    """The clocks of all questions in progress. All clocks stop if any LLM of the run has an outage."""

    def __init__(self) -> None:
        self._clocks: dict[Clock, None] = {}
        self._stopped = 0

    @contextlib.contextmanager
    def timed(self, timeout: asyncio.Timeout | None) -> Iterator[Clock]:
        """Create a question's clock, which runs during the `with` block. If `timeout` is None, the question has no
        time limit."""
        ends = math.inf if timeout is None else timeout.when() or math.inf
        clock = Clock(timeout, asyncio.get_running_loop().time(), ends)
        self._clocks[clock] = None
        clock.stop(self._stopped)
        try:
            yield clock
        finally:
            self._clocks.pop(clock, None)

    def stop(self) -> None:
        """Stop all clocks."""
        self._stopped += 1
        for clock in self._clocks:
            clock.stop(1)

    def go_on(self, since: float | None) -> None:
        """Undo one call of `stop`. If no other LLM has an outage, the clocks run again. The time from `since` (an
        event loop time) until now does not count towards the questions' limits. None: all time counts."""
        now = asyncio.get_running_loop().time()
        self._stopped -= 1
        for clock in self._clocks:
            if since is not None:
                clock.ends += now - max(since, clock.counted)
                clock.counted = now
            clock.stop(-1)


_Met = Literal["others", "late", "outage"]
"""What happened to other calls when a call failed. `others`: they were answered at once. `late`: they were
answered late, as after a short outage. `outage`: they were not answered for some time
"""


def hear_nothing(waiting: Waiting | None) -> None:
    """Do nothing when an outage begins or ends."""


OnOut = Callable[[str, Exception | None], None]
"""A function called with the name of an LLM and the reason why it is out, or None when it answers again"""


def ignore_out(name: str, fault: Exception | None) -> None:
    """Do nothing when an LLM is out or answers again."""


@dataclass(eq=False)
class Outages:
    """Sends calls to one LLM, notices its outages, and waits until they end."""

    llm: LLM
    patience_s: float = 0.0
    """How many seconds to wait for an outage to end. 0: do not wait"""
    on_change: Callable[[Waiting | None], None] = hear_nothing
    """A function to call with the outage when it starts, and with None when it ends"""
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    """Once this event is set, no call waits for an outage to end"""
    lost: int = 0
    """How many questions are tried again because they failed in earlier sessions. Their calls may fail again, so
    failed calls of this many questions do not mean that the LLM is unreachable"""
    clocks: Clocks = field(default_factory=Clocks)
    """The questions' clocks"""
    name: str = THE_LLM
    """The LLM's name in errors"""
    on_out: OnOut = ignore_out
    """A function to call when `is_out` changes"""
    answers: int = 0
    """How many calls the LLM has answered"""
    is_out: bool = False
    """Whether the LLM is known to be out: from the first unanswered probe, an error saying that the LLM has ended,
    or a call cancelled after failed attempts, until it answers a call or a probe"""
    stopped: bool = False
    """Whether the event `stop` ended a wait for an outage to end"""
    _in_work: int = 0
    _begun: int = 0
    # the loop's time of the last probe of `check`, or of the last failure that showed that the LLM is out
    _checked: float = -math.inf
    # the loop's times of the last reply to a call or a probe, and of the last call cancelled without a reply
    _replied: float = -math.inf
    _left: float = -math.inf
    _fault: OutageError | None = None  # why the last call failed, if the LLM has not replied since
    _doubting: asyncio.Task[None] | None = None
    _is_closed: bool = False
    _took: float = 0.0  # how many seconds a call takes: the longest of the recent calls
    _answered: float = -math.inf  # the loop's time of the last reply
    _failed: set[object] = field(default_factory=set)  # questions with a failed call since the last reply
    # seconds in outages since the last reply: a server that answers only probes counts as down
    _waited: float = 0.0
    _looking: asyncio.Task[_Met] | None = None
    _latest: OutageError = field(default_factory=lambda: OutageError(""))
    _passed: asyncio.Event = field(default_factory=asyncio.Event)  # set when the LLM answers during an outage
    # held by the call that the LLM is working on alone
    _trials: asyncio.Lock = field(default_factory=asyncio.Lock)
    _idle: asyncio.Event = field(default_factory=asyncio.Event)  # set when the LLM works on no call

    def __post_init__(self) -> None:
        if (fault := getattr(self.llm, "fault", None)) is not None:  # such as a refused key at its start
            self._latest, self.is_out = fault, True

    async def over(self) -> None:
        """Wait until there is no outage. Raises the same `LLMUnavailableError` as `complete`."""
        while (looking := self._looking) is not None and not looking.done():
            await asyncio.shield(looking)

    def check(self) -> None:
        """If the LLM is out and no call is waiting for it, send a probe without waiting for the reply, so that
        `is_out` becomes False again even in a service that receives no questions while its LLM is out. Do the same
        if calls were cancelled and the LLM has not replied since, because it may hang."""
        now = asyncio.get_running_loop().time()
        is_looking = any(task is not None and not task.done() for task in (self._looking, self._doubting))
        pause = max(_CHECK_S, self._latest.retry_after if self.is_out else 0.0)
        if is_looking or now - self._checked < pause:
            return
        if self.is_out:
            self._look_for_replies(self._latest, now)
        elif self._left > self._replied:
            self._doubting = asyncio.ensure_future(self._doubt())
        else:
            return
        self._checked = now

    async def _doubt(self) -> None:
        """Find out whether the LLM answers a probe, while other calls continue."""
        before = self._replied
        try:
            is_answered = await self._is_answered()
        except LLMUnavailableError as error:
            is_answered, self._latest = False, OutageError(str(error))
        if is_answered:
            self._note(None)
        elif self._replied == before:
            self._note(self._latest)

    def _note(self, fault: Exception | None) -> None:
        """Note that the LLM is out because of `fault`, or that it has replied (None)."""
        now = asyncio.get_running_loop().time()
        if fault is None:
            self._replied, self._fault = now, None
        else:
            self._checked = now
        if self.is_out != (fault is not None):
            self.is_out = fault is not None
            self.on_out(self.name, fault)

    def close(self) -> None:
        """Stop waiting for an outage to end. From now on, no call begins, and a failing call ends."""
        self._is_closed = True
        for task in (self._looking, self._doubting):
            if task is not None:
                task.cancel()

    async def complete(
        self, request: Request, seconds: float | None = None, clock: Clock | None = None
    ) -> Completion:
        """Get the LLM's answer, waiting for any outage to end.

        Args:
            request: The call.
            seconds: The maximum number of seconds per attempt.
            clock: The question's clock. None: the call belongs to no question.

        Raises:
            CallError: The call failed, or the server refuses it while answering others. If it failed several times
                while other calls succeeded, the error is a `TransportError`.
            TimeoutError: The question's time is up.
            LLMUnavailableError: The LLM has ended, or an outage did not end in time.
        """
        began = asyncio.get_running_loop().time()
        try:
            return await self._complete(request, seconds, clock)
        except asyncio.CancelledError:
            if self._replied < began and not self._is_closed:
                self._left = asyncio.get_running_loop().time()
                if fault := getattr(self.llm, "fault", None) or self._fault:
                    self._latest = fault
                    self._note(fault)
            raise

    async def _complete(
        self, request: Request, seconds: float | None, clock: Clock | None, is_trial: bool = False
    ) -> Completion:
        """Implement `complete`. `is_trial`: no other call is running, so one failure in transit reveals the
        cause."""
        loop = asyncio.get_running_loop()
        tries = late = 0
        faults, felled = (_FAULTS["down"] - 1, _FELLED - 1) if is_trial else (0, 0)
        while True:
            if not is_trial:
                await self._turn()
            if self._is_closed:  # Nobody would receive the reply.
                raise LLMUnavailableError("the run has ended")
            began, limit, is_last = loop.time(), seconds, False
            if clock is not None and clock.ends - began < (math.inf if limit is None else limit):
                limit, is_last = max(clock.ends - began, 0.0), True
            try:
                alone = not self._in_work
                self._in_work += 1
                self._idle.clear()
                self._begun += 1
                number = self._begun
                try:
                    async with within(limit) as timeout:
                        completion = await self._ask(request)
                finally:
                    self._in_work -= 1
                    if not self._in_work:
                        self._idle.set()
                self._answered = loop.time()
                self._took = max(self._answered - began, 0.9 * self._took)
                self.answers += 1
                self._failed, self._waited = set(), 0.0
                self._note(None)
                if self._looking is not None:
                    self._passed.set()
                return completion
            except OutageError as error:
                fault, allowed = error, _FAULTS[error.kind]
            except RefusalError as error:
                if self._is_closed:  # No probe can show any more whether the server refuses only this call.
                    raise
                if await self._met(OutageError(str(error)), began) == "outage":
                    continue
                self._check_gone(error.said, clock, began)
                raise error.of_this_call() from None
            except LLMUnavailableError as error:
                self._latest = OutageError(str(error))
                self._note(error)
                raise
            except TimeoutError as error:
                if timeout is not None and timeout.expired():
                    fault, allowed = OutageError(f"the LLM did not answer within {limit or 0:g} s", "slow"), 1
                else:  # The LLM's own time limit ended the call.
                    why = str(error) or type(error).__name__
                    fault, allowed = OutageError(f"the LLM did not answer in time: {why}", "slow"), _FAULTS["slow"]
            if allowed == 1 and is_last and clock is not None and clock.ends > loop.time():
                continue  # The clock stood still during an outage, so the question has time left.
            if self._is_closed:
                raise self._gone(fault, "the run ends")
            self._fault = fault
            # Other calls got replies recently.
            others = fault.kind != "slow" and self._answered > (began + loop.time()) / 2
            met = "others" if others else await self._met(fault, began)
            felled += met == "outage" and fault.kind == "down" and alone and self._begun == number
            if felled >= _FELLED:
                reason = f"{fault}; the LLM went down all {felled} times that it worked on this call alone"
                if is_trial:
                    what = f"{allowed} times while it worked on this call, the last time on this call alone"
                    reason = f"{fault}; the LLM went down {what}"
                self._raise(OutageError(reason), _FELLED, False, clock, began)
            late += met == "late"
            faults += met == "others" or late > _LATE
            if faults >= allowed:
                if others and fault.kind == "down" and not is_trial and await self._met(fault, began) == "outage":
                    # Other calls got replies shortly before, so one of them may have taken the LLM down each time.
                    async with self._alone():
                        return await self._complete(request, seconds, clock, is_trial=True)
                self._raise(fault, allowed, is_last, clock, began)
            tries += 1
            await asyncio.sleep(random.random() * min(_FIRST_PAUSE_S * 2 ** min(tries, 9), _LONGEST_PAUSE_S))

    async def _turn(self) -> None:
        """Wait until there is no outage, and no call that the LLM is working on alone."""
        while self._trials.locked():
            async with self._trials:
                pass
        if self._looking is not None:
            await self.over()

    @contextlib.asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Let no other call begin in the `with` block, and wait until the running ones have ended. Meanwhile, all
        questions' clocks stand still."""
        async with self._trials:
            since = asyncio.get_running_loop().time()
            self.clocks.stop()
            try:
                with contextlib.suppress(TimeoutError):  # A call may hang.
                    async with asyncio.timeout(_PROBES_S[-1] + 2 * self._took):
                        while self._in_work:
                            await self._idle.wait()
                await self.over()
                yield
            finally:
                self.clocks.go_on(since)

    async def _ask(self, request: Request) -> Completion:
        try:
            return await self.llm.complete(request)
        except asyncio.CancelledError:
            # The error references this frame, so the frame must not reference the task, which references the
            # error.
            if getattr(asyncio.current_task(), "cancelling", int)():
                raise
            # The LLM cancelled the call itself. Passed on, the error would end the caller silently.
            raise CallError("the LLM cancelled the call") from None

    def _raise(
        self, fault: OutageError, allowed: int, is_last: bool, clock: Clock | None, began: float
    ) -> NoReturn:
        if allowed == 1:
            raise TimeoutError if is_last else CallError(str(fault))
        self._check_gone(str(fault), clock, began)
        raise TransportError(str(fault))

    def _check_gone(self, fault: str, clock: Clock | None, began: float) -> None:
        """Note a question's failed call, sent at `began`, unless the LLM has answered another call since then.
        Raise `LLMUnavailableError` if the LLM answers only probes."""
        if self._answered <= began:
            self._failed.add(clock or object())
        most = max(_FAILED_IN_A_ROW, self.answers // 5) + self.lost + self._in_work  # Running calls may succeed.
        if len(self._failed) > most:
            raise self._gone(fault, "the LLM answers only short test calls")

    async def _met(self, fault: OutageError, began: float) -> _Met:
        """Find out whether the LLM answers calls other than the one that failed with `fault`, and wait until it
        does. Return what happened to the other calls (see `_Met`)."""
        looking = self._looking
        if looking is None or looking.done():
            looking = self._look_for_replies(fault, began)
        return await asyncio.shield(looking)

    def _look_for_replies(self, fault: OutageError, began: float) -> asyncio.Task[_Met]:
        self._looking = asyncio.ensure_future(self._look(fault, began))
        # Read the exception, because the waiting callers may be gone.
        self._looking.add_done_callback(lambda done: done.cancelled() or done.exception())
        return self._looking

    async def _look(self, fault: OutageError, began: float) -> _Met:
        """Find out whether the LLM answers a probe, and wait until it does. Meanwhile, all questions' clocks stand
        still. Return what happened to other calls (see `_Met`)."""
        loop = asyncio.get_running_loop()
        met: _Met = "outage"
        looked, before = loop.time(), self._answered
        self._latest = fault
        self._passed.clear()
        self.clocks.stop()
        try:
            # If other calls received replies meanwhile, the server may only be busy, and the probe waits in its
            # queue.
            busy_s = 2 * self._took if fault.kind == "slow" and before > began else 0.0
            is_answered = await self._is_answered(busy_s=busy_s)
            if not is_answered and self._latest.kind == "slow" and self._answered > looked:
                self._passed.clear()  # The LLM has answered calls, but not the probe, which may be lost.
                is_answered = await self._is_answered(busy_s=max(busy_s, 2 * self._took))
            if is_answered:
                # A reply just after the call began says nothing about the time since then.
                is_recent = before > (began + looked) / 2
                met = "others" if loop.time() - looked < _AT_ONCE_S or is_recent else "late"
                self._note(None)
                return met
            self._note(self._latest)
            if not self.patience_s:
                raise self._latest
            since = time.time() - (loop.time() - max(began, before))
            self._tell(Waiting(since, str(self._latest), self.name))
            try:
                began_to_wait = loop.time()
                await self._wait(began_to_wait + self.patience_s - self._waited)
                self._note(None)
                self._waited += loop.time() - began_to_wait
            except LLMUnavailableError:
                self._waited = 0.0  # The next call starts a new wait.
                raise
            finally:
                self._tell(None)
            return met
        except LLMUnavailableError as error:
            self._note(error)
            raise
        finally:
            self.clocks.go_on(None if met == "others" else max(began, before))

    async def _wait(self, end: float) -> None:
        loop = asyncio.get_running_loop()
        pause = _FIRST_PAUSE_S
        stopped = asyncio.ensure_future(self.stop.wait())
        try:
            while True:
                left = end - loop.time()
                if self._latest.retry_after > max(left, 0.0):
                    asked = timedelta(seconds=round(self._latest.retry_after))
                    raise self._gone(
                        self._latest, f"the LLM asks for a pause of {asked}, which is longer than allowed"
                    )
                if left <= 0:
                    waited = timedelta(seconds=round(self.patience_s))
                    raise self._gone(self._latest, f"pyfast waited for {waited}")
                wait = max(self._latest.retry_after, min(pause * (1 + random.random()) / 2, left))
                passed = asyncio.ensure_future(self._passed.wait())
                try:
                    await _first(wait, [stopped, passed])
                finally:
                    await cancel([passed])
                # An answered call may have started before the outage, so its reply only justifies a probe.
                self._passed.clear()
                if await self._is_answered([stopped]):
                    return
                if self.stop.is_set():
                    self.stopped = True
                    raise self._gone(self._latest, "stopped while waiting")
                pause = min(2 * pause, _LONGEST_PAUSE_S)
        finally:
            await cancel([stopped])

    async def _is_answered(self, stopped: Sequence[asyncio.Future[Any]] = (), busy_s: float = 0.0) -> bool:
        """Return whether the LLM answers a probe in time. The method also returns when the task in `stopped` ends,
        because `stop` is set.

        `busy_s` is not 0 if the LLM may only be busy. In that case, the method waits at least `busy_s` seconds,
        and a reply to any other call counts as one to the probe. Raises `LLMUnavailableError` if the LLM will not
        come back.
        """
        works: list[asyncio.Future[object]] = []
        if busy_s:
            works.append(asyncio.ensure_future(self._passed.wait()))
        fault, is_sent = getattr(self.llm, "fault", None), False
        try:
            for seconds in (*_PROBES_S[:-1], max(_PROBES_S[-1], busy_s)):
                if stopped and self.stop.is_set():
                    return False
                # A probe whose attempt failed is not lost, because the LLM's client sends it again.
                if not is_sent or getattr(self.llm, "fault", None) is fault:
                    works.append(asyncio.ensure_future(self._probe()))
                    is_sent = True
                if await _first(seconds, [*stopped, *works]):
                    return any(work.done() for work in works)
            raise TimeoutError
        except OutageError as error:
            self._latest = error
            return False
        except TimeoutError:
            self._latest = OutageError(f"the LLM did not answer within {sum(_PROBES_S):g} s", "slow")
            return False
        except LLMUnavailableError:
            raise
        except Exception:
            return True  # The server returned an error of its own, so it works.
        finally:
            await cancel(works)

    async def _probe(self) -> Completion:
        """Send a probe. If the LLM has answered calls before, a refused probe is repeated, because some gateways
        refuse calls at random."""
        for _ in range(_REFUSED_PROBES if self.answers else 0):
            with contextlib.suppress(RefusalError):
                return await self._ask(PROBE)
        return await self._ask(PROBE)

    def _tell(self, waiting: Waiting | None) -> None:
        """Report the start of an outage, or its end (None), to `on_change`. If that function fails, raise
        `RunError`, because no question is to blame."""
        try:
            self.on_change(waiting)
        except Exception as error:
            raise RunError(f"the callback for outages failed: {type(error).__name__}: {error}") from error

    def _gone(self, fault: object, because: str) -> LLMUnavailableError:
        which = "" if self.name == THE_LLM else f"{self.name}: "
        return LLMUnavailableError(f"{which}{fault}; {because}")


async def _first(seconds: float, works: Sequence[asyncio.Future[Any]]) -> bool:
    """Wait at most `seconds` seconds until one of the tasks ends, and return whether one has. If it ended with an
    error, raise this error."""
    done, _ = await asyncio.wait(works, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for work in done:
        work.result()
    return bool(done)


async def cancel(works: Collection[asyncio.Future[Any]]) -> None:
    """Cancel these tasks, and wait until they have ended."""
    for work in works:
        work.cancel()
    await asyncio.gather(*works, return_exceptions=True)
