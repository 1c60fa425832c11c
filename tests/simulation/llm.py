"""The LLM of the simulated world: late, busy, silent, malformed, lying, or down, by a seed. What it says when it
answers well depends on the prompt alone, so that every question's right answer is known without the engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random

from pyfast.errors import CallError, OutageError, RefusalError
from pyfast.llm import Completion, Request
from pyfast.llm.protocol import PROBE

FOREVER = 10_000_000.0
TRANSIENT = ("busy", "down", "slow")
WRONG = ("malformed", "empty", "cut", "listed", "broken")
"""Replies that the engine refuses, and asks again"""
POISONS = ("error", "refused", "filtered", "always malformed", "always cut", "not unicode")
"""What is wrong with a prompt for good"""


def digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=5).hexdigest()


def tokens(text: str) -> int:
    return 1 + len(text) // 4


def good(user: str) -> str:
    """The right reply to a user's message."""
    return digest(user)


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


@dataclass(slots=True)
class World:
    """The LLM's server, which goes on while the engine is killed and comes back."""

    chance: Random
    latency: float = 1.0
    moods: Mapping[str, float] = field(default_factory=dict)
    """How likely each of `TRANSIENT`, `WRONG` and "late" is, for one call"""
    poisoned: Mapping[str, str] = field(default_factory=dict)
    """For parts of prompts: what is wrong with them"""
    outages: list[tuple[float, float, str]] = field(default_factory=list)
    """From when until when it answers nobody, and how: "down", "busy" or "hangs" """
    session: int = 0
    asked: list[Asked] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0

    def is_out(self, now: float) -> str:
        return next((how for first, end, how in self.outages if first <= now < end), "")

    def poison(self, prompt: str) -> str:
        return next((what for part, what in self.poisoned.items() if part in prompt), "")


class SimulatedLLM:
    """The engine's side: each session has its own."""

    spec = "simulated"
    context_window = 100_000
    fingerprint = "simulated-1"

    def __init__(self, world: World, slots: int) -> None:
        self._world, self.slots, self._session = world, slots, world.session

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def complete(self, request: Request) -> Completion:
        world, loop = self._world, asyncio.get_running_loop()
        if request is PROBE:
            await asyncio.sleep(0.01)
            await self._outage()
            return Completion("OK", "stop", 5, 0, 1)
        user = next(message.content for message in request.messages if message.role == "user")
        call = Asked(self._session, user, request.digest().hex(), loop.time())
        world.asked.append(call)
        world.in_flight += 1
        world.most_in_flight = max(world.most_in_flight, world.in_flight)
        try:
            completion = await self._reply(user, call, request.temperature)
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
        mood, drawn = "", chance.random()
        for name, share in world.moods.items():
            drawn -= share
            if drawn < 0:
                mood = name
                break
        wait = world.latency * chance.expovariate(1.0)
        await asyncio.sleep(1000.0 * world.latency + 1000.0 if mood == "late" else wait)
        await self._outage()
        poison = world.poison(user)
        if poison == "error":
            raise CallError("the prompt is too long")
        if poison == "refused":
            raise RefusalError("HTTP 403: forbidden", "HTTP 403: this prompt is forbidden", 403)
        if mood in TRANSIENT:
            raise OutageError(f"HTTP 503: {mood}", mood, chance.choice((0.0, 0.0, 1.5)) if mood == "busy" else 0.0)
        sample = f" {chance.randrange(10**9)}" if temperature else ""
        text, reason = json.dumps({"answer": good(user) + sample}), "stop"
        mood = poison.removeprefix("always ") or mood
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
