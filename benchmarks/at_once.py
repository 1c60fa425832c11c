"""A chat-completions server that answers at once, so that only the client is measured: `python at_once.py`.

It prints its port. The answer repeats the number of the question, which shows that nobody got another's.
"""

import asyncio
import json
from typing import cast

_CHOICE = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": '{"answer": "%d"}'}}
_USAGE = {"prompt_tokens": 1500, "completion_tokens": 5, "total_tokens": 1505}
_ANSWER = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m", "choices": [_CHOICE]}
BEFORE, AFTER = json.dumps({**_ANSWER, "usage": _USAGE}).encode().split(b"%d")
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


class AtOnce(asyncio.Protocol):
    """As little HTTP as two well-behaved clients need."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.waiting = b""

    def data_received(self, data: bytes) -> None:
        data = self.waiting + data if self.waiting else data
        end = data.find(b"\r\n\r\n")
        head = data[:end].lower()
        size = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
        if end < 0 or len(data) < end + 4 + size:
            self.waiting = data
            return
        self.waiting = b""
        at = data.rfind(b"Question ") + len(b"Question ")
        number = data[at : data.find(b":", at)] if at > end else b""
        body = BEFORE + number + AFTER
        self.transport.write(HEAD % len(body) + body)


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(AtOnce, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
