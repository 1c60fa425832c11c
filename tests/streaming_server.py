"""An OpenAI-compatible server that sends its replies token by token.

    python tests/streaming_server.py --port 0

It prints its port once it answers. A reply with the field `answer` or `paragraphs` has the text of ANSWERS, by the
name of the model; every other reply is any valid one. Events are cut at any byte. `GET /counts` tells how many
replies were asked for as streams and as a whole, and how many clients closed the connection before the end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from contextlib import AbstractContextManager
from random import Random
from typing import Any

import orjson
from hostile_server import Server, fault, reply, served

TITAN = 'Christiaan Huygens \U0001f600 “the elder”, "\u00e9\u6f22" \\ a/b\nand; \ud7ff\U0010ffff.'
ANSWERS = {
    "plain": [TITAN],
    "abstains": ["Insufficient evidence."],
    "nearly": ["insufficient evidence of life"],
    "controls": ["red \x1b[31mTitan\x1b[0m and \u202emore"],
    "spaces": [" \n Titan  of Saturn \n "],
    "holds": ["Titan is held"],  # it sends half and goes on after GET /allow/1, or never
    "long": ["Titan, " + "and more, " * 60, "Titan, a moon"],  # the first is longer than the schema allows
    "cut": ["Rhea", "Titan"],  # the first ends with finish_reason length
    "breaks": [TITAN],  # the first connection breaks off in the middle of an event
    "whole": [TITAN],  # it sends no streams
    "refuses_streams": [TITAN],
    "refuses_options": [TITAN],
}
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Streaming(Server):
    """The server of hostile_server.py with other replies to a call."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options)
        self.tried: dict[str, int] = {}

    def state(self) -> dict[str, Any]:
        return dict(self.counts)

    async def chat(self, writer: asyncio.StreamWriter, body: bytes) -> None:
        asked = orjson.loads(body)
        request, name = self.request(body), asked["model"]
        refused = {"refuses_streams": "stream", "refuses_options": "stream_options"}.get(name)
        if refused in asked:
            writer.write(reply(fault(f"{refused} is not supported"), "400 No"))
            return
        text, is_last = (await self.llm.complete(request)).text, False
        fields = json.loads(text) if request.schema else {}
        if "answer" in fields or "paragraphs" in fields:
            is_last = True
            number = self.tried[name] = self.tried.get(name, 0) + 1
            answer = ANSWERS[name][min(number, len(ANSWERS[name])) - 1]
            fields |= {"answer": answer} if "answer" in fields else {"paragraphs": [answer, "", f" {answer}"]}
            text = json.dumps(fields, ensure_ascii=number % 2 == 1)
        reason = "length" if name == "cut" and is_last and number == 1 else "stop"
        usage = {"prompt_tokens": 100, "completion_tokens": 10}
        streams = bool(asked.get("stream")) and name != "whole"
        self.counts["streams" if streams else "wholes"] += 1
        if not streams:
            if name == "holds":
                await self.held(writer)
            said = {"message": {"role": "assistant", "content": text}, "finish_reason": reason}
            writer.write(reply({"choices": [said], "usage": usage}))
            return
        draw = Random(text)
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        deltas += [{"content": piece} for piece in re.findall(r"(?s).{1,3}", text)]
        chunks: list[Any] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
        chunks += [{"choices": [{"delta": {}, "finish_reason": reason}]}, {"choices": [], "usage": usage}]
        events = b"".join(b"data: %s\n\n" % orjson.dumps(chunk) for chunk in chunks) + b"data: [DONE]\n\n"
        writer.write(HEAD)
        at = 0
        while at < len(events):
            piece = events[at : at + draw.randint(1, 90)]
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(0.001)
            at += len(piece)
            if is_last and at - len(piece) < len(events) * 3 // 5 <= at:
                if name == "breaks" and number == 1:
                    writer.close()
                    return
                if name == "holds":
                    await self.held(writer)
        writer.write(b"0\r\n\r\n")

    async def held(self, writer: asyncio.StreamWriter) -> None:
        """Wait until /allow/1, or until the client has closed the connection."""
        self.counts["held"] += 1
        while not self.options.allow:
            if writer.is_closing() or writer.transport.is_closing() or self.reader_of(writer).at_eof():
                self.counts["closed"] += 1
                raise ConnectionError
            await asyncio.sleep(0.002)

    def reader_of(self, writer: asyncio.StreamWriter) -> asyncio.StreamReader:
        protocol: Any = writer.transport.get_protocol()
        reader: asyncio.StreamReader = protocol._stream_reader
        return reader


def streaming() -> AbstractContextManager[str]:
    """Such a server in a process of its own, by its URL."""
    return served(__file__, "--port", "0")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    vars(options).update(weights=[("good", 1)], seed=0, log=None, allow=None, outage=None)
    server = Streaming(options)
    await server.listen(options.port)
    print(server.server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
