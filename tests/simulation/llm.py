"""The LLM of the simulated world: late, busy, silent, malformed, lying, or down, by a seed. What it says when it
answers well depends on the prompt alone, so that every question's right answer is known without the engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from random import Random
from types import ModuleType
from typing import Any

import aiohttp
import orjson

import pyfast.llm.openai
from pyfast.errors import CallError, OutageError, RefusalError
from pyfast.llm import Completion, Request
from pyfast.llm.openai import OpenAI
from pyfast.llm.protocol import PROBE
from pyfast.llm.server_calls import ServerOptions

FOREVER = 10_000_000.0
TRANSIENT = ("busy", "down", "slow")
WRONG = ("malformed", "empty", "cut", "listed", "broken")
"""Replies that the engine refuses, and asks again"""
HTTP_S = 300.0
"""How many seconds a call over HTTP may take"""
STALLED = ("always late", "always busy", "always down")
"""What keeps a prompt from being answered at all, while the LLM answers others"""
FELLS = "takes the server down"
POISONS = ("error", "refused", "filtered", "always malformed", "always cut", "not unicode")
"""What is wrong with a prompt for good"""


@lru_cache(1 << 12)
def digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=5).hexdigest()


def tokens(text: str) -> int:
    return 1 + len(text) // 4


def good(user: str) -> str:
    """The right reply to a user's message."""
    return digest(user)


def in_fields(user: str) -> dict[str, Any]:
    """The right reply to a user's message, in its fields."""
    return {"answer": good(user)}


@dataclass(slots=True)
class Asked:
    """One call that reached the LLM."""

    session: int
    prompt: str
    """The user's first message"""
    request: str
    began: float
    ended: float = -1.0
    """-1: the call never ended, or was cancelled"""
    outcome: str = ""
    batch: str = ""
    """The id of the provider's batch that had it"""


@dataclass(slots=True)
class World:
    """The LLM's server, which keeps running while the engine is killed and restarted."""

    chance: Random
    latency: float = 1.0
    moods: Mapping[str, float] = field(default_factory=dict)
    """How likely each of `TRANSIENT`, `WRONG` and "late" is, for one call"""
    poisoned: Mapping[str, str] = field(default_factory=dict)
    """For parts of prompts: what is wrong with them"""
    outages: list[tuple[float, float, str]] = field(default_factory=list)
    """From when until when it answers nobody, and how: "down", "busy" or "hangs" """
    reply: Callable[[str], dict[str, Any]] = in_fields
    """The fields of the right reply to a user's message"""
    is_felled_until: float = 0.0
    """Until when it answers nobody, because of a prompt that takes it down"""
    session: int = 0
    asked: list[Asked] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    provider: Any = None
    """Of a run whose LLM is behind a Batch API (see `batches`)"""

    def is_out(self, now: float) -> str:
        how = next((how for first, end, how in self.outages if first <= now < end), "") if self.outages else ""
        return how or ("down" if now < self.is_felled_until else "")

    def poison(self, prompt: str) -> str:
        of = self.poisoned
        return next((what for part, what in of.items() if part in prompt), "") if of else ""

    def mood(self) -> str:
        drawn = self.chance.random()
        for name, share in self.moods.items():
            drawn -= share
            if drawn < 0:
                return name
        return ""


class SimulatedLLM:
    """The engine's side: each session has its own."""

    spec = "simulated"
    context_window = 100_000
    fingerprint = "simulated-1"

    def __init__(self, world: World, slots: int) -> None:
        self._world, self.slots, self._session = world, slots, world.session
        self.chance = world.chance

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def complete(self, request: Request) -> Completion:
        user = next(message.content for message in request.messages if message.role == "user")
        return await self.reply(user, f"{hash(request.messages):x}", request.temperature)

    async def reply(self, user: str, request: str, temperature: float) -> Completion:
        """Answer a request by its first message of a user, or the probe."""
        world, loop = self._world, asyncio.get_running_loop()
        if user == PROBE.messages[-1].content:
            await asyncio.sleep(0.01)
            await self._outage()
            return Completion("OK", "stop", 5, 0, 1)
        call = Asked(self._session, user, request, loop.time())
        world.asked.append(call)
        world.in_flight += 1
        world.most_in_flight = max(world.most_in_flight, world.in_flight)
        try:
            completion = await self._reply(user, call, temperature)
        except asyncio.CancelledError:
            call.outcome = "cancelled"
            raise
        except Exception as error:
            call.outcome = type(error).__name__
            raise
        finally:
            call.ended = loop.time()
            world.in_flight -= world.session == self._session
        return completion

    async def _outage(self) -> None:
        how = self._world.is_out(asyncio.get_running_loop().time())
        if how == "hangs":
            await asyncio.sleep(FOREVER)
        if how:
            raise OutageError(f"the server is {how}", "busy" if how == "busy" else "down")

    async def _reply(self, user: str, call: Asked, temperature: float) -> Completion:
        world, chance = self._world, self._world.chance
        await self._outage()
        if world.poison(user) == FELLS:
            await asyncio.sleep(chance.random())
            world.is_felled_until = asyncio.get_running_loop().time() + chance.uniform(2.0, 6.0)
        mood, wait = world.mood(), world.latency * chance.expovariate(1.0)
        mood = "late" if world.poison(user) == "always late" else mood
        await asyncio.sleep(1000.0 * world.latency + 1000.0 if mood == "late" else wait)
        await self._outage()
        return self.said(user, call, temperature, mood)

    def said(self, user: str, call: Asked, temperature: float, mood: str) -> Completion:
        """What the model says in this mood. Raises the errors of a call."""
        world, chance = self._world, self._world.chance
        poison = world.poison(user)
        if poison == "error":
            raise CallError("the prompt is too long")
        if poison == "refused":
            raise RefusalError("HTTP 403: forbidden", "HTTP 403: this prompt is forbidden", 403)
        mood = poison.removeprefix("always ") or mood
        if mood in TRANSIENT:
            raise OutageError(f"HTTP 503: {mood}", mood, chance.choice((0.0, 0.0, 1.5)) if mood == "busy" else 0.0)
        told = world.reply(user)
        if temperature:
            told["answer"] += f" {chance.randrange(10**9)}"
        text, reason = orjson.dumps(told).decode(), "stop"
        if mood == "malformed":
            text = chance.choice(("I cannot say.", '{"reply": 1}', '{"answer": {"a": 1}}', "[]", "null"))
        elif mood == "empty":
            text = ""
        elif mood == "cut":  # Some servers end what they cut off, so that it reads as JSON.
            short = json.dumps({"answer": good(user)[:3]})
            text, reason = chance.choice((short, text[: chance.randint(1, len(text) - 1)])), "length"
        elif mood == "listed":
            text = json.dumps({"answer": [good(user)]})
        elif mood == "broken":
            text = text[:-2]
        elif mood == "filtered":
            text, reason = text[:4], "content_filter"
        elif mood == "not unicode":
            text = "\ud800" + text
        call.outcome = mood or "good"
        return Completion(text, reason, tokens(user), 0, tokens(text))


class Body:
    """A response of HTTP: its status, headers and body."""

    def __init__(self, status: int, told: Any, headers: Mapping[str, str] | None = None) -> None:
        self.status, self._told, self.headers = status, told, headers or {}

    @property
    def content(self) -> Body:
        return self

    async def iter_any(self) -> AsyncIterator[bytes]:
        yield self._told if isinstance(self._told, bytes) else json.dumps(self._told).encode()


def as_chat(done: Completion) -> dict[str, Any]:
    """A completion as servers of the OpenAI protocol tell it."""
    usage = {"prompt_tokens": done.prompt_tokens, "completion_tokens": done.completion_tokens}
    message = {"role": "assistant", "content": done.text}
    return {"choices": [{"message": message, "finish_reason": done.finish_reason}], "usage": usage}


class HttpSession:
    """Takes the place of aiohttp's session: a server with the model of the simulated world."""

    closed = False

    def __init__(self, llm: SimulatedLLM) -> None:
        self._llm = llm

    @asynccontextmanager
    async def get(self, *_: Any, **__: Any) -> AsyncIterator[Body]:
        yield Body(200, {"data": []})

    @asynccontextmanager
    async def request(self, _: str, __: Any, *, data: bytes, **___: Any) -> AsyncIterator[Body]:
        asked = json.loads(data)
        user = next(message["content"] for message in asked["messages"] if message["role"] == "user")
        try:
            done = await self._llm.reply(user, digest(json.dumps(asked["messages"])), asked["temperature"])
        except OutageError as error:
            yield self._failed(error)
        except RefusalError as error:
            yield Body(403, {"error": {"message": error.said}})
        except CallError as error:
            yield Body(400, {"error": {"message": str(error)}})
        else:
            yield Body(200, as_chat(done))

    def _failed(self, error: OutageError) -> Body:
        """Gateways say in many ways that nobody is there, one of them with the status of success."""
        status = 429 if error.kind == "busy" else 503
        told = {"error": {"message": str(error), "code": status}}
        drawn = self._llm.chance.random()
        if drawn < 0.4:
            return Body(200, told)
        if drawn < 0.6 and error.kind != "busy":
            raise aiohttp.ServerDisconnectedError
        return Body(status, told, {"Retry-After": str(error.retry_after)} if error.retry_after else None)

    async def close(self) -> None: ...


def transport(session: Callable[[], HttpSession]) -> None:
    """Let servers of the OpenAI protocol be reached by such sessions. Only the transport is simulated."""
    simulated: Any = ModuleType("aiohttp")
    vars(simulated).update(vars(aiohttp), ClientSession=lambda **_: session())
    pyfast.llm.openai.aiohttp = simulated
    pyfast.llm.openai.http.connector = lambda: None  # type: ignore[assignment, return-value]


def over_http(world: World, slots: int) -> OpenAI:
    """The model of the simulated world, as a server of the OpenAI protocol."""
    transport(lambda: HttpSession(SimulatedLLM(world, slots)))
    options = ServerOptions(concurrency=slots, context_window=100_000, attempts=2, timeout_s=HTTP_S)
    return OpenAI("openai:simulated@http://127.0.0.1:1", "simulated", "http://127.0.0.1:1/v1", options)
