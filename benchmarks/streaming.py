"""The first token of an answer through `pyfast serve`, beside the LLM's server alone.

    python benchmarks/streaming.py                       # rag, 64 clients
    python benchmarks/streaming.py --system direct

The LLM is a server in a process of its own. Each reply takes --first seconds to its first token and then --token
seconds for each further one. Clients ask again a random time after their answer. In each round they first ask the
LLM's server itself for the same replies, and then `pyfast serve`. The time to the first token ends with the first
character of the answer.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Iterator
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
import orjson
import typer
from serving import DATA, HEAD, process, said, served, used

from pyfast.corpus import read
from pyfast.retrieval import build_index

EVENT = b"data: %s\n\n"
ANSWER = "Christiaan Huygens found it in the year 1655"
REPLY = orjson.dumps({"answer": ANSWER}).decode()
TOKENS = ['{"answer":"', *[f"{' ' * bool(at)}{word}" for at, word in enumerate(ANSWER.split())], '"}']
BEGAN = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(**choice: Any) -> bytes:
    event = EVENT % orjson.dumps({"object": "chat.completion.chunk", "choices": [{"index": 0, **choice}]})
    return b"%x\r\n%s\r\n" % (len(event), event)


CHUNKS = [chunk(delta={"content": token}) for token in TOKENS]
LAST = chunk(delta={}, finish_reason="stop") + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


async def request_in(reader: asyncio.StreamReader) -> bytes:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    return await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0))


async def llm(first: float, token: float) -> None:
    """The LLM's server."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                body = await request_in(reader)
            except (asyncio.IncompleteReadError, ConnectionError):
                writer.close()
                return
            if not body:
                models = orjson.dumps({"data": [{"id": "m", "max_model_len": 32768}]})
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(models) + models)
                continue
            await asyncio.sleep(first)
            writer.write(BEGAN + CHUNKS[0] + CHUNKS[1])
            for piece in CHUNKS[2:]:
                await asyncio.sleep(token)
                writer.write(piece)
            writer.write(LAST)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def asked(port: int, bodies: Iterator[bytes], clients: int, seconds: float, pause: float) -> list[float]:
    """The times to the first token, of so many clients for so long."""
    times: list[float] = []
    host = f"127.0.0.1:{port}"

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
        await asyncio.sleep(random.random() * pause)
        while perf_counter() < end:
            body = next(bodies)
            writer.write(HEAD.format(path="/v1/chat/completions", host=host, size=len(body)).encode() + body)
            began, text, first = perf_counter(), "", 0.0
            while not (line := await reader.readline()).startswith(b"data: [DONE]"):
                if line.startswith(b"data: "):
                    for choice in orjson.loads(line[6:])["choices"]:
                        text += choice["delta"].get("content") or ""
                    if not first and text and text != TOKENS[0]:
                        first = perf_counter() - began
                elif not line or line.startswith(b"HTTP/1.1 4"):
                    raise SystemExit(f"the server ended the stream: {line!r}")
            await reader.readuntil(b"0\r\n\r\n")
            assert text in (ANSWER, REPLY), text
            times.append(first)
            await asyncio.sleep(random.random() * pause)
        writer.close()

    end = perf_counter() + seconds
    await asyncio.gather(*(client() for _ in range(clients)))
    return times


def main(
    system: str = "rag",
    clients: int = 64,
    first: float = 0.2,
    token: float = 0.05,
    seconds: float = 15.0,
    rounds: int = 3,
    pause: float = 1.0,
    server: bool = typer.Option(False, hidden=True),
) -> None:
    """Measure."""
    if server:
        asyncio.run(llm(first, token))
        return
    texts = [json.loads(line)["question"] for line in (DATA / "hybridqa/questions.jsonl").read_text().splitlines()]
    asks = [{"model": system, "stream": True, "messages": [{"role": "user", "content": text}]} for text in texts]
    own, other = 0, 1
    with TemporaryDirectory() as scratch:
        from pathlib import Path

        index = Path(scratch) / "index"
        build_index(read([DATA / "hybridqa/corpus.jsonl"]), index)
        command = [sys.executable, __file__, "--server", "--first", first, "--token", token]
        with process(other, *command) as alone:
            port = int(said(alone))
            with served(own, index, f"openai:m@http://127.0.0.1:{port}", system, 64, None) as (at, serving):
                found: dict[str, list[list[float]]] = {"the LLM's server": [], "pyfast serve": []}
                for number in range(rounds + 1):
                    for name, where in zip(found, (port, at), strict=True):
                        bodies = iter([orjson.dumps(one) for one in random.sample(asks, len(asks))] * 100)
                        cpu = used(serving.pid)[0]
                        times = asyncio.run(asked(where, bodies, clients, seconds if number else 3.0, pause))
                        cpu = used(serving.pid)[0] - cpu
                        if number:  # The first round warms up.
                            found[name].append(times)
                            p50, p99 = 1000 * np.percentile(times, [50, 99])
                            told = f"{name}: {len(times)} answers, p50 {p50:.1f} ms, p99 {p99:.1f} ms"
                            share = f", {1000 * cpu / len(times):.2f} ms of the server's processor an answer"
                            print(told + share * (where == at), flush=True)
                less, more = (median(median(one) for one in rounds) for rounds in found.values())
                print(f"{system}, {clients} clients: {1000 * (more - less):+.1f} ms in the median of the rounds")


if __name__ == "__main__":
    typer.run(main)
