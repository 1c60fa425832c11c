"""A chat-completions server with known service times, in a process of its own; it prints its port.

`wait N us` in a question: the reply comes after N microseconds. `in P places`: at most P replies are made at once,
the others wait their turn. `stall N ms`: nothing is answered for so long.
"""

import asyncio
import heapq
import json
import re
import socket
import time
from typing import Any, cast

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
_WAIT, _STALL = re.compile(r"wait (\d+) us"), re.compile(r"stall (\d+) ms")
_PLACES = re.compile(r"in (\d+) places")
_FREE: dict[int, list[float]] = {}  # when each of so many places is free
MODELS = b'{"object": "list", "data": [{"id": "m", "max_model_len": 4096}]}'
CHOICE = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": '{"answer": "42"}'}}
USAGE = {"prompt_tokens": 40, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 8}}
REPLY = json.dumps({"id": "1", "object": "chat.completion", "choices": [CHOICE], "usage": USAGE}).encode()


class Server(asyncio.Protocol):
    """As little HTTP as the client needs."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.waiting = bytearray()

    def data_received(self, data: bytes) -> None:
        self.waiting += data
        end = self.waiting.find(b"\r\n\r\n")
        head = bytes(self.waiting[: max(end, 0)]).lower()
        size = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
        if end < 0 or len(self.waiting) < end + 4 + size:
            return
        body = bytes(self.waiting[end + 4 : end + 4 + size])
        del self.waiting[: end + 4 + size]
        if not body:
            self.send(MODELS)
            return
        asked: dict[str, Any] = json.loads(body)
        text = asked["messages"][-1]["content"]
        if stall := _STALL.search(text):
            time.sleep(int(stall[1]) / 1e3)
        wait = _WAIT.search(text)
        loop = asyncio.get_running_loop()
        start = loop.time()
        end = start + (int(wait[1]) / 1e6 if wait else 0.0)
        if places := _PLACES.search(text):
            free = _FREE.setdefault(int(places[1]), [0.0] * int(places[1]))
            end += max(0.0, free[0] - start)
            heapq.heapreplace(free, end)
        loop.call_at(end, self.send, REPLY)

    def send(self, body: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(HEAD % len(body) + body)


async def main() -> None:
    """Serve until killed."""
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
