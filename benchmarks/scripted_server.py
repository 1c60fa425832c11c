"""A chat-completions server whose answers have the right form and no meaning.

    python scripted_server.py [SECONDS]

It prints its port. Each answer takes SECONDS, 0 by default. A request with a JSON schema gets an answer of that
form, as `--llm instant` gives it; one for LightRAG's keywords gets such of its question; any other a few words.
A request without a body gets the list of models, with the number of calls that were answered.
"""

import asyncio
import re
import sys
from typing import Any, cast

import orjson

from pyfast.llm import Request, dialogue
from pyfast.llm.instant import Instant

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
_QUERY = re.compile(r"(?:User Query|Query): (.+)")
LLM = Instant()
SECONDS = 0.0
SCHEMAS: dict[bytes, Any] = {}  # the LLM remembers what it made of an object


async def answer(asked: dict[str, Any]) -> bytes:
    """The body of the reply."""
    said = asked["messages"][-1]["content"]
    schema = asked.get("response_format", {}).get("json_schema", {}).get("schema")
    schema = schema and SCHEMAS.setdefault(orjson.dumps(schema), schema)
    if schema is None and '"high_level_keywords"' in said:
        words = _QUERY.findall(said)[-1].split()
        pieces = [" ".join(words[at : at + 3]) for at in range(0, len(words), 3)]
        text = orjson.dumps({"high_level_keywords": pieces[-2:], "low_level_keywords": pieces[:4]}).decode()
    else:
        request = Request(dialogue(said), asked.get("max_tokens") or 500, schema, seed=asked.get("seed") or 0)
        text = (await LLM.complete(request)).text
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    usage = {"prompt_tokens": len(said) // 4, "completion_tokens": 9, "total_tokens": len(said) // 4 + 9}
    reply = {"id": "1", "object": "chat.completion", "created": 1, "model": asked["model"], "choices": [choice]}
    return orjson.dumps({**reply, "usage": usage})


class Server(asyncio.Protocol):
    """As little HTTP as well-behaved clients need."""

    answered = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.waiting = bytearray()
        self.tasks: set[asyncio.Task[None]] = set()

    def data_received(self, data: bytes) -> None:
        self.waiting += data
        end = self.waiting.find(b"\r\n\r\n")
        head = bytes(self.waiting[: max(end, 0)]).lower()
        size = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
        if end < 0 or len(self.waiting) < end + 4 + size:
            return
        body = bytes(self.waiting[end + 4 : end + 4 + size])
        del self.waiting[: end + 4 + size]
        task = asyncio.get_running_loop().create_task(self.reply(body))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def reply(self, body: bytes) -> None:
        if body and SECONDS:
            await asyncio.sleep(SECONDS)
        if body:
            told = await answer(orjson.loads(body))
            Server.answered += 1
        else:
            told = orjson.dumps({"object": "list", "data": [{"id": "m"}], "calls": Server.answered})
        self.transport.write(HEAD % len(told) + told)


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 0.0
    asyncio.run(main())
