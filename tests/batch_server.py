"""A provider with a Batch API, in a process of its own. It answers as `Instant`, from the request alone.

    python tests/batch_server.py --port 0 --seconds 0.5 --fail 7

It prints its port once it answers. `GET /counts` tells what was submitted. The reply to the creation of a batch
can be held (`--hold`), so that a client is killed between its request and the reply.
"""

from __future__ import annotations

import argparse
import asyncio
import time
import urllib.request
from collections import Counter
from contextlib import AbstractContextManager
from typing import Any
from zlib import crc32

import orjson
from aiohttp import web
from hostile_server import served
from odd_server import ODDITIES, Call, Model

from pyfast.llm import Message, Request
from pyfast.llm.instant import Instant


class Provider:
    """Its files and batches, and what it was asked."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.llm = Instant()
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, dict[str, Any]] = {}
        self.received = 0  # creations that arrived
        self.accepted = 0  # creations that were accepted, whether or not their replies were sent
        self.custom_ids: Counter[str] = Counter()
        self.bodies: Counter[str] = Counter()  # answered well
        self.submitted: Counter[str] = Counter()
        self.online = 0
        self.schemas: dict[bytes, Any] = {}
        self.allowed = asyncio.Condition()
        self.works: set[asyncio.Task[None]] = set()
        self.odd: dict[str, Model] = {}

    def odd_response(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """The response of a model that has the names of oddities (see odd_server.py)."""
        name = body["model"]
        if name.partition(",")[0] not in ODDITIES:
            return None
        model = self.odd[name] = self.odd.get(name) or Model(name)
        model.calls += 1
        call = Call.of(body)
        oddity = model.drawn(call)
        return {"status_code": 200, "body": call.whole()} if oddity is None else oddity.as_line(call)

    async def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        schema = body.get("response_format", {}).get("json_schema", {}).get("schema")
        if schema is not None:
            schema = self.schemas.setdefault(orjson.dumps(schema), schema)
        messages = tuple(Message(message["role"], message["content"]) for message in body["messages"])
        done = await self.llm.complete(Request(messages, body["max_tokens"], schema, seed=body["seed"]))
        text = done.text
        if "hops" in (schema or {}).get("properties", {}):  # n2n's plan: each question is one of three hops
            text = orjson.dumps({**orjson.loads(text), "hops": 3}).decode()
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": done.prompt_tokens, "completion_tokens": done.completion_tokens}
        return {"object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}

    async def chat(self, request: web.Request) -> web.Response:
        self.online += 1
        return web.json_response(await self.answer(await request.json()))

    async def upload(self, request: web.Request) -> web.Response:
        sent = await request.post()
        assert sent["purpose"] == "batch"
        id = f"file-{len(self.files)}"
        self.files[id] = sent["file"].file.read()  # type: ignore[union-attr]
        return web.json_response({"id": id, "object": "file", "purpose": "batch"})

    async def create(self, request: web.Request) -> web.Response:
        asked = await request.json()
        self.received += 1
        if asked["endpoint"] != "/v1/chat/completions" or asked["completion_window"] != "24h":
            return web.json_response({"error": {"message": "what endpoint?"}}, status=400)
        if self.options.late_s:
            await asyncio.sleep(self.options.late_s)
        id = f"batch_{len(self.batches)}"
        batch = {"id": id, "object": "batch", "status": "in_progress", **asked, "created_at": int(time.time())}
        if self.options.no_metadata:
            del batch["metadata"]
        self.batches[id] = batch
        self.accepted += 1
        work = asyncio.create_task(self.work(batch))
        self.works.add(work)
        await asyncio.sleep(self.options.hold)
        if self.options.cut and self.accepted <= self.options.cut:
            assert request.transport is not None
            request.transport.abort()
        return web.json_response(batch)

    async def work(self, batch: dict[str, Any]) -> None:
        calls = [orjson.loads(line) for line in self.files[batch["input_file_id"]].splitlines()]
        if len(calls) > self.options.most:
            batch["status"] = "failed"
            batch["errors"] = {"data": [{"code": "token_limit_exceeded", "message": "too much at once"}]}
            return
        self.custom_ids.update(call["custom_id"] for call in calls)
        digests = [f"{crc32(orjson.dumps(call['body'])):08x}" for call in calls]
        self.submitted.update(digests)
        await asyncio.sleep(self.options.seconds)
        async with self.allowed:
            await self.allowed.wait_for(lambda: int(batch["id"].partition("_")[2]) < self.options.allow)
        good, bad = [], []
        for at, (call, digest) in enumerate(zip(calls, digests, strict=True)):
            if batch["status"] != "in_progress":
                break
            told = {"id": f"r{at}", "custom_id": call["custom_id"], "error": None}
            if self.options.fail and self.submitted[digest] == 1 and int(digest, 16) % self.options.fail == 0:
                error = {"message": "out of luck"}
                bad.append({**told, "response": {"status_code": 500, "body": {"error": error}}})
            elif (
                self.options.expire and self.submitted[digest] == 1 and int(digest, 16) % self.options.expire == 0
            ):
                bad.append({**told, "response": None, "error": {"code": "batch_expired", "message": "too late"}})
            elif (response := self.odd_response(call["body"])) is not None:
                (good if response["status_code"] == 200 else bad).append({**told, "response": response})
            elif self.options.refuse and self.options.refuse in call["body"]["messages"][-1]["content"]:
                error = {"message": "this prompt is not allowed"}
                bad.append({**told, "response": {"status_code": 400, "body": {"error": error}}})
            elif self.options.complain and "max_tokens" in call["body"]:
                message = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens'"
                error = {"message": message, "param": "max_tokens"}
                bad.append({**told, "response": {"status_code": 400, "body": {"error": error}}})
            else:
                body = {"max_tokens": call["body"].get("max_completion_tokens"), **call["body"]}
                good.append({**told, "response": {"status_code": 200, "body": await self.answer(body)}})
                self.bodies[digest] += 1
        good.reverse()  # results come in any order
        for name, lines in (("output_file_id", good), ("error_file_id", bad)):
            if lines:
                batch[name] = f"file-{len(self.files)}"
                self.files[batch[name]] = b"".join(orjson.dumps(line) + b"\n" for line in lines)
        if batch["status"] == "in_progress":
            batch["status"] = "expired" if self.options.expire else "completed"

    async def look(self, request: web.Request) -> web.Response:
        return web.json_response(self.batches[request.match_info["id"]])

    async def cancel(self, request: web.Request) -> web.Response:
        if self.options.no_metadata:
            raise web.HTTPNotFound
        batch = self.batches[request.match_info["id"]]
        batch["status"] = "cancelled"
        return web.json_response(batch)

    async def list(self, request: web.Request) -> web.Response:
        """The newest first, five a page at most."""
        if self.options.list_down:
            return web.json_response({"error": {"message": "try later"}}, status=503)
        ids = list(reversed(self.batches))
        after = request.query.get("after")
        start = ids.index(after) + 1 if after else 0
        page = ids[start : start + min(5, int(request.query.get("limit", 20)))]
        more = bool(page) and page[-1] != ids[-1]
        return web.json_response({"object": "list", "data": [self.batches[id] for id in page], "has_more": more})

    async def content(self, request: web.Request) -> web.Response:
        return web.Response(body=self.files[request.match_info["id"]])

    async def allow(self, request: web.Request) -> web.Response:
        async with self.allowed:
            self.options.allow = int(request.match_info["batches"])
            self.allowed.notify_all()
        return web.json_response({})

    async def counts(self, request: web.Request) -> web.Response:
        told = {
            "received": self.received,
            "accepted": self.accepted,
            "batches": len(self.batches),
            "online": self.online,
            "custom_ids": len(self.custom_ids),
            "custom_ids_twice": sum(count > 1 for count in self.custom_ids.values()),
            "answered": sum(self.bodies.values()),
            "answered_twice": sum(count > 1 for count in self.bodies.values()),
            **{name: model.state() for name, model in self.odd.items()},
            "statuses": [batch["status"] for batch in self.batches.values()],
        }
        return web.json_response(told)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--seconds", type=float, default=0.05, help="that a batch takes")
    parser.add_argument("--hold", type=float, default=0.0, help="seconds between accepting a batch and the reply")
    parser.add_argument("--late-s", type=float, default=0.0, help="seconds before it accepts a batch")
    parser.add_argument(
        "--cut", type=int, default=0, help="cut the connection in place of the first so many replies"
    )
    parser.add_argument("--fail", type=int, default=0, help="one call in so many fails, the first time")
    parser.add_argument(
        "--expire", type=int, default=0, help="one call in so many is not carried out, the first time"
    )
    parser.add_argument("--most", type=int, default=10**9, help="calls of a batch; a larger one fails")
    parser.add_argument("--allow", type=int, default=10**9, help="finish so many batches, until GET /allow/N")
    parser.add_argument("--complain", action="store_true", help="refuse max_tokens")
    parser.add_argument("--refuse", default="", help="refuse calls with this text")
    parser.add_argument("--list-down", action="store_true", help="answer 503 in place of the list of batches")
    parser.add_argument("--no-metadata", action="store_true")
    parser.add_argument("--no-list", action="store_true")
    options = parser.parse_args()
    provider = Provider(options)
    app = web.Application(client_max_size=1 << 30)
    app.add_routes(
        [
            web.get("/v1/models", lambda _: web.json_response({"data": [{"id": "m", "max_model_len": 32768}]})),
            web.post("/v1/chat/completions", provider.chat),
            web.post("/v1/files", provider.upload),
            web.get("/v1/files/{id}/content", provider.content),
            web.post("/v1/batches", provider.create),
            web.get("/v1/batches/{id}", provider.look),
            web.post("/v1/batches/{id}/cancel", provider.cancel),
            web.get("/counts", provider.counts),
            web.get("/allow/{batches}", provider.allow),
        ]
    )
    if not options.no_list:
        app.add_routes([web.get("/v1/batches", provider.list)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", options.port)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


def batch_server(*options: object) -> AbstractContextManager[str]:
    """Such a provider in a process of its own, by its URL."""
    return served(__file__, *options)


def allow(url: str, batches: int) -> None:
    """Have the provider at `url` finish so many batches in all."""
    with urllib.request.urlopen(f"{url}/allow/{batches}", timeout=30):
        pass


def counts(url: str) -> dict[str, Any]:
    """What the provider at `url` was asked so far."""
    with urllib.request.urlopen(f"{url}/counts", timeout=30) as answer:
        result: dict[str, Any] = orjson.loads(answer.read())
    return result


if __name__ == "__main__":
    asyncio.run(main())
