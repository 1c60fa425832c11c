"""An OpenAI-compatible server that keeps count and, as often as a test asks, misbehaves.

    python tests/hostile_server.py --port 0 --weights good=8,cut=1,busy=1 --seed 3

It prints its port once it answers. What happens to a request follows from the seed, its body and how often that
body came before: not from the order in which requests arrive, so that runs can be compared. A good answer follows
from the request alone and is valid under its JSON schema. `GET /counts` tells what was asked so far. After
`GET /break/DIGEST` the JSON breaks off of each answer to a conversation that begins with the text of that digest.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from hashlib import blake2b
from random import Random
from typing import Any

import orjson

from pyfast.llm import Completion, Message, Request
from pyfast.llm.instant import Instant

MODES = {
    "good": "answers",
    "truncated": "the answer's JSON breaks off",
    "wrong": "JSON of another schema",
    "empty": "no choices",
    "busy": "429 with Retry-After",
    "error": "500",
    "cut": "the connection breaks off in the middle of the body",
    "late": "answers after --late-s seconds",
    "huge": "10 MB of text",
    "length": "cut off at max_tokens",
    "filtered": "finish_reason content_filter",
    "unfinished": "no finish_reason",
}
MANNERS = ("constrained", "fenced", "thinking", "long-winded", "terse")
OUTAGES = ("error", "busy", "refused", "hanging")
HUGE = orjson.dumps("x" * 10_000_000)


class Server:
    """What it was told, and what it was asked. Every POST counts when it comes; tokens, where one is answered."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.modes, self.weights = zip(*options.weights, strict=True)
        self.counts: Counter[str] = Counter()
        self.bodies: Counter[str] = Counter()
        self.systems: Counter[str] = Counter()  # what the conversations begin with
        self.llm = Instant()
        self.schemas: dict[bytes, dict[str, Any]] = {}
        self.allowed = asyncio.Condition()
        self.connections: set[asyncio.StreamWriter] = set()
        self.out = ""  # the kind of outage that it is in
        self.breaks = ""  # the digest of the beginning whose answers break off
        self.log = os.open(options.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT) if options.log else None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, request after request. (asyncio sets TCP_NODELAY.)"""
        self.connections.add(writer)
        try:
            while not writer.is_closing():
                head = await reader.readuntil(b"\r\n\r\n")
                line, _, fields = head.lower().partition(b"\r\n")
                length = fields.partition(b"content-length:")[2].split(b"\r\n", 1)[0]
                body = await reader.readexactly(int(length or 0))
                if line.startswith(b"post"):
                    await self.chat(writer, body)
                elif b"/allow/" in line:
                    async with self.allowed:
                        self.options.allow = int(line.split(b"/allow/")[1].split()[0])
                        self.allowed.notify_all()
                    writer.write(reply({}))
                elif b"/break/" in line:
                    self.breaks = line.split(b"/break/")[1].split()[0].decode()
                    writer.write(reply({}))
                elif b"/counts" in line:
                    writer.write(reply(self.state()))
                elif b"/models" in line:
                    writer.write(reply({"object": "list", "data": [{"id": "hostile", "max_model_len": 32768}]}))
                else:
                    writer.write(reply({"error": {"message": "no such page"}}, "404 Not Found"))
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, ValueError):
            pass  # the client hung up, or does not speak HTTP
        finally:
            self.connections.discard(writer)
            writer.close()

    async def listen(self, port: int) -> None:
        # The limit is the longest head of a request.
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", port, backlog=4096, limit=1 << 20)

    async def fail(self, kind: str, seconds: float) -> None:
        """An outage. Calls that hang in it are never answered."""
        self.out = kind
        port = self.server.sockets[0].getsockname()[1]
        if kind == "refused":
            self.server.close()
            for writer in self.connections:
                writer.transport.abort()
        await asyncio.sleep(seconds)
        if kind == "refused":
            await self.listen(port)
        self.out = ""

    def state(self) -> dict[str, Any]:
        modes = {mode: self.counts[mode] for mode in MODES}
        totals = {name: self.counts[name] for name in ("requests", "prompt_tokens", "completion_tokens")}
        return {**totals, "modes": modes, "bodies": self.bodies, "systems": self.systems}

    async def chat(self, writer: asyncio.StreamWriter, body: bytes) -> None:
        digest = blake2b(body, digest_size=8).hexdigest()
        draw = Random(f"{self.options.seed} {digest} {self.bodies[digest]}")
        mode = draw.choices(self.modes, self.weights)[0]
        self.bodies[digest] += 1
        self.counts["requests"] += 1
        self.counts[mode] += 1
        number = self.counts["requests"]
        async with self.allowed:
            await self.allowed.wait_for(lambda: self.options.allow is None or number <= self.options.allow)
        if self.options.outage and number == self.options.outage[1]:
            self.outage = asyncio.create_task(self.fail(self.options.outage[0], self.options.outage[2]))
            await asyncio.sleep(0)
        if self.out == "hanging":
            await asyncio.Event().wait()
        if self.out:
            writer.write(reply(fault("out"), {"error": "500 Oops", "busy": "429 No"}.get(self.out, "503 Out")))
            return
        if self.options.delay_ms:
            await asyncio.sleep(self.options.delay_ms / 1000)
        if mode == "late":
            await asyncio.sleep(self.options.late_s)
        if mode == "busy":
            writer.write(reply(fault("slow down"), "429 No", f"Retry-After: {self.options.retry_after}"))
        elif mode == "error":
            writer.write(reply(fault("out of luck"), "500 Oops"))
        else:
            try:
                done = await self.said(self.request(body))
            except (ValueError, LookupError, TypeError) as error:
                writer.write(reply(fault(f"unreadable request: {error!r}"), "400 Bad Request"))
                return
            self.counts["prompt_tokens"] += done.prompt_tokens
            self.counts["completion_tokens"] += done.completion_tokens
            if self.breaks == digest_of(orjson.loads(body)["messages"][0]["content"]):
                mode = "truncated"
            answer = reply(answered(mode, done))
            if mode == "cut":
                writer.write(answer[: len(answer) * 2 // 3])
                writer.close()
            else:
                writer.write(answer)
        if self.log is not None:
            os.write(self.log, f"{mode} {digest}\n".encode())

    async def said(self, request: Request) -> Completion:
        """What a model of the server's manner makes of the same answer."""
        manner = self.options.manner
        if manner == "constrained" or (request.schema is None and manner != "thinking"):
            return await self.llm.complete(request)
        asked = next(at for at, said in enumerate(request.messages, start=1) if said.role == "user")
        again = len(request.messages) > asked
        done = await self.llm.complete(replace(request, messages=request.messages[:asked]))
        return replace(done, text=in_manner(manner, done.text, again))

    def request(self, body: bytes) -> Request:
        asked = orjson.loads(body)
        schema = asked.get("response_format", {}).get("json_schema", {}).get("schema")
        if schema is not None:  # the same object each time: what is made of a schema is remembered by its identity
            schema = self.schemas.setdefault(orjson.dumps(schema), schema)
        self.systems[asked["messages"][0]["content"]] += 1
        messages = tuple(Message(said["role"], said["content"]) for said in asked["messages"])
        return Request(messages, asked.get("max_tokens", 16), schema, seed=asked.get("seed", 0))


def in_manner(manner: str, text: str, again: bool) -> str:
    """A constrained model's JSON, as one says it that is not; `again`: it was told that it must be JSON alone."""
    if manner == "fenced":
        return f"```json\n{text}\n```"
    if manner == "thinking":
        return f'<think>\nPerhaps {{"answer": "42"}}? No, so: {text[:-1]}\n</think>\n\n{text}'
    if manner == "long-winded":
        return f"Sure! Here is what {{you}} asked for:\n\n{text}\n\nI hope that this helps. :-}}"
    said = {name: value for name, value in orjson.loads(text).items() if value not in ("", [])}
    return orjson.dumps(said).decode() if again else " ".join(str(value) for value in said.values())


def answered(mode: str, done: Completion) -> dict[str, Any]:
    """The body of a completion, good or not."""
    text: Any = done.text
    reason = {"length": "length", "filtered": "content_filter", "unfinished": None}.get(mode, "stop")
    if mode in ("truncated", "length"):
        text = text[: len(text) // 2]
    elif mode == "filtered":
        text = ""
    elif mode == "wrong":
        text = '{"sorry": ["I", "made", 3]}'
    elif mode == "huge":
        text = orjson.Fragment(HUGE)
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": reason}
    usage = {"prompt_tokens": done.prompt_tokens, "completion_tokens": done.completion_tokens}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": "hostile",
        "choices": [] if mode == "empty" else [choice],
        "usage": usage,
    }


def fault(message: str) -> dict[str, Any]:
    return {"error": {"message": message}}


def reply(content: dict[str, Any], status: str = "200 OK", *headers: str) -> bytes:
    body = orjson.dumps(content)
    lines = (f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(body)}", *headers)
    return "\r\n".join((*lines, "", "")).encode() + body


@contextmanager
def served(script: str, *options: object) -> Iterator[str]:
    """A server in a process of its own, by its URL. The script prints the port when it listens."""
    command = [sys.executable, script, *map(str, options)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def hostile(*options: str) -> AbstractContextManager[str]:
    """Such a server in a process of its own, by its URL."""
    return served(__file__, "--port", "0", *options)


def counts(url: str) -> dict[str, Any]:
    """What the server at `url` was asked so far."""
    with urllib.request.urlopen(f"{url}/counts", timeout=30) as answer:
        result: dict[str, Any] = orjson.loads(answer.read())
    return result


def allow(url: str, requests: int) -> None:
    """Have the server at `url` answer so many requests in all; it holds what is beyond them."""
    with urllib.request.urlopen(f"{url}/allow/{requests}", timeout=30):
        pass


def break_off(url: str, beginning: str) -> None:
    """Have the server at `url` break off its answers to conversations that begin so, and to no others."""
    with urllib.request.urlopen(f"{url}/break/{digest_of(beginning)}", timeout=30):
        pass


def digest_of(text: str) -> str:
    return blake2b(text.encode(), digest_size=8).hexdigest()


def weights(text: str) -> list[tuple[str, float]]:
    """`good=8,cut=1` → [("good", 8.0), ("cut", 1.0)]"""
    pairs = [part.partition("=") for part in text.split(",")]
    unknown = {mode for mode, _, _ in pairs} - MODES.keys()
    if unknown:
        raise ValueError(f"unknown modes {unknown}; known are {', '.join(MODES)}")
    return [(mode, float(weight)) for mode, _, weight in pairs]


def outage(text: str) -> tuple[str, int, float]:
    """`busy,20,13` → ("busy", 20, 13.0)"""
    kind, at, seconds = text.split(",")
    if kind not in OUTAGES:
        raise ValueError(f"unknown outage {kind}; known are {', '.join(OUTAGES)}")
    return kind, int(at), float(seconds)


async def main() -> None:
    known = "; ".join(f"{mode}: {meaning}" for mode, meaning in MODES.items())
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], epilog=known)
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--weights", type=weights, default="good=1", help="how often each mode is drawn")
    parser.add_argument("--manner", choices=MANNERS, default="constrained", help="how good answers are worded")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--delay-ms", type=float, default=0, help="before each reply")
    parser.add_argument("--allow", type=int, help="hold requests beyond so many, until GET /allow/N allows more")
    parser.add_argument("--late-s", type=float, default=5, help="before a late reply")
    parser.add_argument("--retry-after", default="0.05", help="the header of a 429")
    parser.add_argument("--log", help="a file that gets a line `MODE DIGEST` for each reply")
    parser.add_argument("--outage", type=outage, help="KIND,N,SECONDS of an outage that begins with request N")
    server = Server(parser.parse_args())
    await server.listen(server.options.port)
    print(server.server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
