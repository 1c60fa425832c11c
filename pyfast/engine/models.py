"""The LLMs of a run or service, the roles (purposes of prompts) that they answer, and the order in which waiting
LLM calls start."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from pyfast.engine.outages import THE_LLM, Clocks, OnOut, Outages, Waiting, hear_nothing, ignore_out
from pyfast.errors import InputError
from pyfast.llm import DEFAULT_ROLE, LLM, FullLLM, Request, Role, by_role, with_defaults
from pyfast.llm.protocol import BatchLog, CollectingLLM, Progress, collecting


class Admission:
    """Lets at most `limit` LLM calls run at the same time.

    Waiting calls start in groups. When all calls of a group have started, all calls waiting at that moment become
    the next group. Each group is sorted by prompt, so that prompts with the same beginning follow each other and
    the LLM can use its prefix cache. A call waits for the rest of the current group and for the earlier calls of
    its own.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.running = 0
        self._sweep: deque[tuple[list[str], asyncio.Future[None]]] = deque()
        self._waiting: list[tuple[list[str], asyncio.Future[None]]] = []

    async def enter(self, request: Request) -> None:
        """Wait for a place. The caller must call `leave` when the LLM call ends."""
        if self.running < self._limit:
            self.running += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(([message.content for message in request.messages], turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # The call was admitted at the same moment.
                self.leave()
            raise

    def leave(self) -> None:
        """Mark a call as ended, so that the next waiting call can start."""
        while self._sweep or self._waiting:
            if not self._sweep:
                self._waiting.sort(key=lambda entry: entry[0])
                self._sweep.extend(self._waiting)
                self._waiting.clear()
            _, turn = self._sweep.popleft()
            if not turn.done():  # A future that is already done belongs to a cancelled coroutine.
                turn.set_result(None)
                return
        self.running -= 1


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """One LLM, with the places for its calls and the state of its outages, which all calls to it share."""

    llm: FullLLM
    outages: Outages
    admission: Admission
    collecting: CollectingLLM | None = None
    """The LLM, if it collects calls into batches; otherwise None"""


class Models:
    """The LLMs of a run, by role. Roles with the same LLM share its places for calls, and its outages."""

    def __init__(
        self,
        llm: LLM | Mapping[Role, LLM],
        patience_s: float = 0.0,
        on_change: Callable[[Waiting | None], None] = hear_nothing,
        stop: asyncio.Event | None = None,
        lost: int = 0,
        on_out: OnOut = ignore_out,
    ) -> None:
        """Prepare the models. `llm` is one LLM, or a mapping from roles to LLMs. The other arguments are those of
        `Outages`.
        """
        self.clocks, stop = Clocks(), stop or asyncio.Event()
        self._on_change = on_change
        self._waiting: dict[str, Waiting] = {}
        self._joined: list[CollectingLLM] = []
        self._by_role: dict[Role, Model] = {}
        roles: dict[int, list[Role]] = {}
        given = by_role(llm)
        for role, given_llm in given.items():
            roles.setdefault(id(given_llm), []).append(role)
        for shared in roles.values():
            one = with_defaults(given[shared[0]])
            name = THE_LLM if len(roles) == 1 else f"the LLM for {', '.join(shared)}"
            outages = Outages(one, patience_s, partial(self._heard, name), stop, lost, self.clocks, name, on_out)
            # Twice as many calls as the LLM runs at once keep all its slots busy.
            model = Model(one, outages, Admission(2 * one.slots), collecting(one))
            self._by_role |= dict.fromkeys(shared, model)
        self._distinct = tuple(dict.fromkeys(self._by_role.values()))

    def of(self, role: Role) -> Model:
        """Find the model that answers the prompts of a role. Raises `InputError` if neither this role nor the
        default has a model.
        """
        model = self._by_role.get(role) or self._by_role.get(DEFAULT_ROLE)
        if model is None:
            raise InputError(f"there is no LLM for the role {role!r}, and no default")
        return model

    async def join_run(self, log: BatchLog) -> Progress | None:
        """Announce the start of a run to the LLMs that collect calls into batches. Returns the `Progress` in which
        the run must count its questions, or None if there is no such LLM. Raises these LLMs' errors."""
        progress = Progress()
        for model in self._distinct:
            if model.collecting is not None:
                await model.collecting.join_run(progress, log)
                self._joined.append(model.collecting)
        return progress if self._joined else None

    async def over(self) -> None:
        """Wait until no model has an outage. Raises `LLMUnavailableError` as `Outages.over` does."""
        for model in self._distinct:
            await model.outages.over()

    def are_out(self) -> bool:
        """Return whether any LLM is out, and probe those that are (see `Outages.check`)."""
        for model in self._distinct:
            model.outages.check()
        return any(model.outages.is_out for model in self._distinct)

    @property
    def have_answered(self) -> bool:
        """Whether a model has answered a call in this session."""
        return any(model.outages.answers for model in self._distinct)

    @property
    def stopped(self) -> bool:
        """Whether the event `stop` ended a wait for a model's outage to end."""
        return any(model.outages.stopped for model in self._distinct)

    def close(self) -> None:
        """Stop waiting for outages to end, and announce the end of the run to the LLMs that collect calls."""
        for llm in self._joined:
            llm.leave_run()
        for model in self._distinct:
            model.outages.close()

    def _heard(self, name: str, waiting: Waiting | None) -> None:
        self._waiting.pop(name, None)
        if waiting is not None:
            self._waiting[name] = waiting
        self._on_change(next(reversed(self._waiting.values()), None))
