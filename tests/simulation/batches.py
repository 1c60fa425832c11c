"""A provider's Batch API in the simulated world. It goes on while the engine is killed and comes back: batches end
late, in part, in any order, or not at all, and replies to requests are lost on their way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import aiohttp

import pyfast.llm.openai_batches
from pyfast.errors import CallError, OutageError, RefusalError
from pyfast.llm.batch_provider import BatchOptions
from pyfast.llm.openai_batches import OpenAIBatches
from pyfast.llm.protocol import PROBE
from simulation.llm import Asked, Body, HttpSession, SimulatedLLM, World, as_chat, digest, transport

POLL_S, SETTLE_S, TIMEOUT_S = 10.0, 20.0, 60.0
_LISTED = 3
"""How many batches a page of the list has"""
MOODS = {
    "refuses": 0.1,
    "loses": 0.1,
    "hangs": 0.02,
    "expires": 0.3,
    "is cancelled": 0.2,
    "fails": 0.2,
    "skips": 0.2,
    "repeats": 0.3,
}
"""What goes wrong, and how likely it is if it can: for a request, for a whole batch, or for a call in a batch"""
_FOREIGN = b'{"custom_id": "0-%d", "response": {"status_code": 200, "body": {}}}'
NOT_CARRIED = "not carried out"


@dataclass
class _Batch:
    id: str
    told: dict[str, Any]
    """What the provider says of it all the time"""
    listed: float
    """From when on it is in the list"""
    ends: float
    status: str
    """How it ends"""
    files: dict[str, str] = field(default_factory=dict)
    errors: Any = None

    def state(self, now: float) -> dict[str, Any]:
        if now < self.ends:
            begins = ("validating", "in_progress", "in_progress", "finalizing")
            return {**self.told, "status": begins[int(now) % 4]}
        return {**self.told, "status": self.status, **self.files, "errors": self.errors}


class Provider:
    """The files and batches of a provider."""

    def __init__(self, world: World, moods: Mapping[str, float], takes: float) -> None:
        self.world, self._chance, self.moods, self._takes = world, world.chance, dict(moods), takes
        self._files: dict[str, bytes] = {}
        self._batches: list[_Batch] = []
        self.faults: list[str] = []
        """What the engine did wrong, as the provider sees it"""
        self.failed: list[float] = []
        """When requests were not answered well"""
        self.kill_in, self.kills_before = 0, False
        """The process is killed at this request (0: at none), before it arrives or before its reply does"""

    def end_faults(self) -> None:
        """Let only what a run survives go wrong from now on."""
        self.moods = {mood: share for mood, share in self.moods.items() if mood in ("refuses", "loses", "repeats")}
        self.kill_in = 0

    def _has(self, mood: str) -> bool:
        return mood in self.moods and self._chance.random() < self.moods[mood]

    async def exchange(self, method: str, url: Any, data: Any) -> Body:
        """Answer one request."""
        self.kill_in -= 1
        if not self.kill_in and self.kills_before:
            await _killed()
        await asyncio.sleep(self._chance.choice((0.0, 0.05, 0.5)))
        how = self.world.is_out(asyncio.get_running_loop().time())
        is_first = url.query.get("limit") == "1"  # Who begins does not wait for a provider that is down.
        if how or (not is_first and self._has("refuses")):
            return self._lost(429 if how == "busy" else 503, self._chance.random() < 0.3)
        if not is_first and self._has("hangs"):
            self._note()
            await asyncio.sleep(10 * TIMEOUT_S)
        answer = self._answer(method, url, data)
        if not self.kill_in and not self.kills_before:
            await _killed()
        if not is_first and self._has("loses"):
            return self._lost(502, self._chance.random() < 0.5)
        return answer

    def _note(self) -> None:
        self.failed.append(asyncio.get_running_loop().time())

    def _lost(self, status: int, cuts: bool) -> Body:
        self._note()
        if cuts and status != 429:
            raise aiohttp.ServerDisconnectedError
        return Body(status, {"error": {"message": "try again", "code": status}})

    def _answer(self, method: str, url: Any, data: Any) -> Body:
        path = url.path.removeprefix("/v1/").split("/")
        match (method, *path):
            case ("POST", "files"):
                return Body(200, {"id": self._new_file(data._parts[1][0]._value), "object": "file"})
            case ("GET", "files", id, "content"):
                return Body(200, self._files[id])
            case ("POST", "batches"):
                return Body(200, self._created(json.loads(data)).state(0.0))
            case ("GET", "batches"):
                return Body(200, self._list(url.query))
            case ("GET", "batches", id):
                now = asyncio.get_running_loop().time()
                return Body(200, next(batch.state(now) for batch in self._batches if batch.id == id))
        raise ValueError(f"{method} {url}")

    def _new_file(self, content: bytes) -> str:
        id = f"file-{len(self._files)}"
        self._files[id] = content
        return id

    def _list(self, query: Mapping[str, str]) -> dict[str, Any]:
        """The newest first, with those of other programs."""
        now = asyncio.get_running_loop().time()
        told = [batch.state(now) for batch in reversed(self._batches) if batch.listed <= now]
        told.insert(len(told) // 2, {"id": "batch_other", "status": "completed", "metadata": None})
        ids = [one["id"] for one in told]
        first = ids.index(query["after"]) + 1 if "after" in query else 0
        page = told[first : first + min(_LISTED, int(query["limit"]))]
        return {"object": "list", "data": page, "has_more": first + len(page) < len(told)}

    def _created(self, asked: dict[str, Any]) -> _Batch:
        chance, now = self._chance, asyncio.get_running_loop().time()
        calls = [json.loads(line) for line in self._files[asked["input_file_id"]].splitlines()]
        ids = [call["custom_id"] for call in calls]
        if len({*ids}) < len(ids) or not ids:
            self.faults.append(f"a batch with the calls {ids}")
        id, ends = f"batch_{len(self._batches)}", now + self._takes * chance.uniform(0.2, 1.8)
        batch = _Batch(
            id, {"id": id, "object": "batch", **asked}, now + chance.uniform(0, SETTLE_S), ends, "completed"
        )
        self._batches.append(batch)
        if self._has("fails"):
            batch.status, batch.errors = "failed", {"data": [{"code": "limit", "message": "too much at once"}]}
            return batch
        done = len(calls)
        for mood, status in (("expires", "expired"), ("is cancelled", "cancelled")):
            if self._has(mood):
                batch.status, done = status, chance.randint(0, done)
        carried_out = {*chance.sample(range(len(calls)), done)}
        good, bad = list[bytes](), list[bytes]()
        for place, call in enumerate(calls):
            line = self._line(call, ends, id, place in carried_out)
            if line is None:  # The provider says nothing of some calls that it has not carried out.
                continue
            lines = good if line["response"] and line["response"]["status_code"] == 200 else bad
            lines.append(json.dumps(line).encode())
            if self._has("repeats"):
                lines.append(chance.choice((lines[-1], _FOREIGN % chance.randrange(len(calls)), b"{", b"")))
        for name, lines in (("output_file_id", good), ("error_file_id", bad)):
            chance.shuffle(lines)
            if lines:
                batch.files[name] = self._new_file(b"\n".join(lines))
        return batch

    def _line(self, call: dict[str, Any], ends: float, batch: str, carried_out: bool) -> dict[str, Any] | None:
        """The result of one call."""
        chance, world, body = self._chance, self.world, call["body"]
        user = next(message["content"] for message in body["messages"] if message["role"] == "user")
        request = digest(json.dumps([body["messages"], body["temperature"]]))
        asked = Asked(world.session, user, request, asyncio.get_running_loop().time(), ends, NOT_CARRIED, batch)
        if user == PROBE.messages[-1].content:
            self.faults.append(f"a probe is in {batch}")
        else:
            world.asked.append(asked)
        told: dict[str, Any] = {"id": f"r-{call['custom_id']}", "custom_id": call["custom_id"], "response": None}
        if not carried_out or self._has("skips"):
            if not carried_out and chance.random() < 0.3:
                return None
            if chance.random() < 0.5:
                return {**told, "error": {"code": "batch_expired", "message": "too late"}}
            return {**told, "response": {"status_code": chance.choice((500, 429)), "body": None}, "error": None}
        try:
            done = SimulatedLLM(world, 1).said(user, asked, body["temperature"], world.mood())
            status, answer = 200, as_chat(done)
        except (OutageError, RefusalError, CallError) as error:
            status = 503 if isinstance(error, OutageError) else 403 if isinstance(error, RefusalError) else 400
            asked.outcome = type(error).__name__
            answer = {"error": {"message": str(error)}}
        return {**told, "response": {"status_code": status, "body": answer}, "error": None}


class _Session(HttpSession):
    """A connection to the provider."""

    def __init__(self, llm: SimulatedLLM, provider: Provider) -> None:
        super().__init__(llm)
        self._provider = provider

    @asynccontextmanager
    async def request(self, method: str, url: Any, *, data: Any = None, **_: Any) -> AsyncIterator[Body]:
        if url.path.endswith("/chat/completions"):
            async with super().request(method, url, data=data) as response:
                yield response
        else:
            yield await self._provider.exchange(method, url, data)


def over_batches(provider: Provider, options: Mapping[str, Any]) -> OpenAIBatches:
    """The model of the simulated world, behind a Batch API."""
    world = provider.world
    transport(lambda: _Session(SimulatedLLM(world, 64), provider))
    named: Any = SimpleNamespace(token_hex=lambda count: f"{world.chance.getrandbits(8 * count):0{2 * count}x}")
    pyfast.llm.openai_batches.secrets = named
    given = BatchOptions(poll_s=POLL_S, settle_s=SETTLE_S, timeout_s=TIMEOUT_S, context_window=100_000, **options)
    return OpenAIBatches("batch:simulated@http://127.0.0.1:1", "simulated", "http://127.0.0.1:1/v1", given)


async def _killed() -> None:
    """Let the process end now."""
    loop: Any = asyncio.get_running_loop()
    loop.kill_at = loop.steps + 1
    await asyncio.Event().wait()
