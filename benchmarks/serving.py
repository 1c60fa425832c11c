"""`pyfast serve` under load, beside the engine in process.

    python benchmarks/serving.py load                             # n2n, 256 clients, an LLM that answers at once
    python benchmarks/serving.py load --llm-seconds 0.05          # an LLM that takes 50 ms a call
    python benchmarks/serving.py load --seconds 600 --rounds 1    # memory over ten minutes
    python benchmarks/serving.py load --profile FILE              # where the server's time goes
    python benchmarks/serving.py beside --peer ENV/bin/hayhooks   # beside Hayhooks; see peer_hayhooks.py

Server, clients and LLM are processes of their own. What is measured has one core: the server, and the engine
in a process without HTTP, which is the 100 %. Clients and LLM share the other core. A client asks its next
question when it has its answer. Where other work takes the cores, compare the processor time of an answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import count, cycle
from pathlib import Path
from shutil import copyfile
from statistics import median
from time import perf_counter, sleep
from typing import Annotated, Any, cast
from urllib.request import Request, urlopen

import numpy as np
import orjson
import typer
from overhead import DATA
from rich.console import Console
from rich.table import Table

import pyfast
from pyfast.corpus import read
from pyfast.engine import dedicate_process
from pyfast.retrieval import build_index
from pyfast.systems import load_system
from pyfast.systems.prompts import ANSWER

HERE = Path(__file__).parent
WARM_UP_S = 3.0
HEAD = "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
app = typer.Typer()


@dataclass(frozen=True, slots=True)
class Load:
    """What clients saw, and what the process that answered used."""

    answers: int
    seconds: float
    p50: float
    p99: float
    faults: int
    cpu_s: float
    memory: tuple[float, ...]
    """MB, sampled over the time"""

    @property
    def rate(self) -> float:
        """Answers a second."""
        return self.answers / self.seconds

    @property
    def each_ms(self) -> float:
        """Milliseconds of processor time an answer."""
        return 1000 * self.cpu_s / max(self.answers, 1)


class Client(asyncio.Protocol):
    """One connection that is kept alive: the next question goes out when the answer is in."""

    def __init__(self, requests: Iterator[bytes], times: list[tuple[float, float]], faults: list[bytes]) -> None:
        self._requests, self._times, self._faults = requests, times, faults
        self._came = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask the first question."""
        self._transport = cast(asyncio.Transport, transport)
        self._ask()

    def _ask(self) -> None:
        self._began = perf_counter()
        self._transport.write(next(self._requests))

    def data_received(self, data: bytes) -> None:
        """Note the time of a whole answer."""
        self._came += data
        end = self._came.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._came[:end]).lower()
        size = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(self._came) < end + 4 + size:
            return
        now = perf_counter()
        self._times.append((now, now - self._began))
        if not head.startswith(b"http/1.1 200"):
            self._faults.append(bytes(self._came[:500]))
        del self._came[: end + 4 + size]
        self._ask()


def used(pid: int) -> tuple[float, float]:
    """(Seconds of processor time, MB of memory) of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS, int(fields[21]) * PAGE / 1e6


async def loaded(port: int, path: str, bodies: Sequence[bytes], clients: int, seconds: float, pid: int) -> Load:
    """Ask for so long from so many clients."""
    heads = [HEAD.format(path=path, host=f"127.0.0.1:{port}", size=len(body)).encode() for body in bodies]
    requests = cycle([head + body for head, body in zip(heads, bodies, strict=True)])
    times: list[tuple[float, float]] = []
    faults: list[bytes] = []
    loop = asyncio.get_running_loop()
    made = [
        await loop.create_connection(lambda: Client(requests, times, faults), "127.0.0.1", port)
        for _ in range(clients)
    ]
    await asyncio.sleep(WARM_UP_S)
    begun, (cpu, _) = perf_counter(), used(pid)
    memory = []
    for _ in range(20):
        await asyncio.sleep(seconds / 20)
        memory.append(used(pid)[1])
    ended, cpu = perf_counter(), used(pid)[0] - cpu
    for transport, _ in made:
        transport.abort()
    if faults:
        print(faults[0].decode(errors="replace"), file=sys.stderr)
    waits = np.array([wait for at, wait in times if begun <= at <= ended])
    p50, p99 = np.percentile(waits, [50, 99]).tolist() if len(waits) else (0.0, 0.0)
    return Load(len(waits), ended - begun, p50, p99, len(faults), cpu, tuple(memory))


async def in_process(
    index: Path, llm: str, system: str, texts: Sequence[str], clients: int, concurrency: int, seconds: float
) -> Load:
    """The same load on an engine, without HTTP."""
    times: list[tuple[float, float]] = []
    faults = 0
    questions = zip(count(), cycle(texts))
    over = False

    async def client(engine: pyfast.Engine) -> None:
        nonlocal faults
        while not over:
            number, text = next(questions)
            began = perf_counter()
            record = await engine.answer({"id": f"q{number}", "question": text}, system=system)
            faults += record.state == "failed"
            now = perf_counter()
            times.append((now, now - began))

    async with pyfast.Engine(index, llm, concurrency=concurrency) as engine:
        dedicate_process()
        asking = [asyncio.ensure_future(client(engine)) for _ in range(clients)]
        await asyncio.sleep(WARM_UP_S)
        begun, (cpu, _) = perf_counter(), used(os.getpid())
        await asyncio.sleep(seconds)
        ended, (after, memory) = perf_counter(), used(os.getpid())
        over = True
        await asyncio.gather(*asking)
    waits = np.array([wait for at, wait in times if begun <= at <= ended])
    p50, p99 = np.percentile(waits, [50, 99]).tolist()
    return Load(len(waits), ended - begun, p50, p99, faults, after - cpu, (memory,))


@contextmanager
def process(core: int, *command: object, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process on one core."""
    full = ["taskset", "-c", str(core), *map(str, command)]
    with subprocess.Popen(full, stdout=subprocess.PIPE, text=True, **options) as running:
        try:
            yield running
        finally:
            running.terminate()


def said(running: subprocess.Popen[str]) -> str:
    """The next line that a process prints."""
    assert running.stdout is not None
    return running.stdout.readline().strip()


@contextmanager
def served(core: int, index: Path, llm: str, system: str, concurrency: int, profile: Path | None) -> Iterator[Any]:
    """`pyfast serve`: (its port, its process)."""
    profiled = [] if profile is None else ["-m", "cProfile", "-o", profile]
    given = ["--index", index, "--llm", llm, "--system", system, "--port", 0, "--concurrency", concurrency]
    command = [sys.executable, *profiled, "-m", "pyfast", "serve", *given]
    with process(core, *command, stderr=subprocess.PIPE) as running:
        assert running.stderr is not None
        for line in running.stderr:
            if "serving at" in line:
                yield int(line.partition("127.0.0.1:")[2].partition("/")[0]), running
                break


@contextmanager
def set_up(
    model: str, questions: Path, corpus: Path, llm_seconds: float
) -> Iterator[tuple[int, Path, str, list[bytes]]]:
    """The core of what is measured, an index, the URL of the scripted LLM, and the bodies of requests."""
    own, other = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, {other})
    texts = [json.loads(line)["question"] for line in questions.read_text().splitlines()]
    chat = [orjson.dumps({"model": model, "messages": [{"role": "user", "content": text}]}) for text in texts]
    with tempfile.TemporaryDirectory() as scratch:
        index = Path(scratch) / "index"
        build_index(read([corpus]), index)
        with process(other, sys.executable, HERE / "scripted_server.py", llm_seconds) as llm:
            yield own, index, f"http://127.0.0.1:{said(llm)}", chat


@app.command()
def load(
    system: str = "n2n",
    clients: int = 256,
    concurrency: Annotated[int, typer.Option(help="Of the engine, in the server and without it.")] = 64,
    llm_seconds: Annotated[float, typer.Option(help="That a call of the LLM takes.")] = 0.0,
    seconds: Annotated[float, typer.Option(help="Of a round, after 3 seconds that do not count.")] = 20.0,
    rounds: int = 3,
    profile: Annotated[Path | None, typer.Option(help="Only the server, profiled into this file.")] = None,
    questions: Path = DATA / "hybridqa" / "questions.jsonl",
    corpus: Path = DATA / "hybridqa" / "corpus.jsonl",
) -> None:
    """Measure."""
    with set_up(system, questions, corpus, llm_seconds) as (own, index, url, chat):
        llm = f"openai:m@{url}"

        def server() -> Load:
            with served(own, index, llm, system, concurrency, profile) as (at, serving):
                return asyncio.run(loaded(at, "/v1/chat/completions", chat, clients, seconds, serving.pid))

        def engine() -> Load:
            given = [index, llm, system, clients, concurrency, seconds, questions]
            with process(own, sys.executable, __file__, "engine", *given) as alone:
                return Load(**json.loads(said(alone)))

        sides = {"engine in process": engine, "pyfast serve": server}
        if profile is not None:
            sides, rounds = {"pyfast serve": server}, 1
        loads: dict[str, list[Load]] = {name: [] for name in sides}
        for _ in range(rounds):
            for name, measure in sides.items():
                loads[name].append(measure())
                sleep(0.5)
    show(loads)


@app.command(hidden=True)
def engine(
    index: Path, llm: str, system: str, clients: int, concurrency: int, seconds: float, questions: Path
) -> None:
    """The engine in this process."""
    texts = [json.loads(line)["question"] for line in questions.read_text().splitlines()]
    load = asyncio.run(in_process(index, llm, system, texts, clients, concurrency, seconds))
    print(json.dumps(asdict(load)), flush=True)


@contextmanager
def hayhooks(core: int, program: Path, index: Path, url: str, passages: int, scratch: Path) -> Iterator[Any]:
    """Hayhooks with the pipeline of peer_hayhooks.py: (its port, its process)."""
    opened = pyfast.open_index(index)
    texts = [opened.text(passage) for passage in range(len(opened.passages))]
    (scratch / "passages.jsonl").write_bytes(b"".join(orjson.dumps(text) + b"\n" for text in texts))
    settings = {
        "passages": str(scratch / "passages.jsonl"),
        "url": f"{url}/v1",
        "instructions": ANSWER.system,
        "k": passages,
    }
    (scratch / "settings.json").write_bytes(orjson.dumps(settings))
    (scratch / "pipelines" / "rag").mkdir(parents=True)
    copyfile(HERE / "peer_hayhooks.py", scratch / "pipelines" / "rag" / "pipeline_wrapper.py")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [program, "run", "--host", "127.0.0.1", "--port", port, "--pipelines-dir", scratch / "pipelines"]
    quiet = {"HAYHOOKS_TRACING_ENABLED": "false", "HAYSTACK_TELEMETRY_ENABLED": "false", "LOG": "WARNING"}
    environment = os.environ | quiet | {"PEER_SETTINGS": str(scratch / "settings.json")}
    with (scratch / "log").open("w+") as log, process(core, *command, stderr=log, env=environment) as running:
        status = b""
        while not status and running.poll() is None:  # It answers when it has made the pipeline, or failed.
            sleep(0.2)
            with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/status") as reply:
                status = reply.read()
        if b'"rag"' not in status:
            raise SystemExit(f"hayhooks did not start:\n{(scratch / 'log').read_text()}")
        yield port, running


def checked(port: int, url: str, bodies: Sequence[bytes]) -> None:
    """Ask some questions one by one. Each must have an answer, and exactly one call of the LLM."""
    for body in bodies:
        before = calls_of(url)
        request = Request(
            f"http://127.0.0.1:{port}/v1/chat/completions", body, {"Content-Type": "application/json"}
        )
        with urlopen(request) as reply:
            (choice,) = orjson.loads(reply.read())["choices"]
        calls = calls_of(url) - before
        if not choice["message"]["content"] or calls != 1:
            raise SystemExit(f"{calls} calls of the LLM, and the answer {choice['message']['content']!r}")


def calls_of(url: str) -> int:
    """The number of calls that the scripted LLM has answered."""
    with urlopen(f"{url}/calls") as reply:
        return int(orjson.loads(reply.read())["calls"])


@app.command()
def beside(
    peer: Annotated[Path, typer.Option(help="The program `hayhooks` of an environment of its own.")],
    clients: int = 8,
    llm_seconds: Annotated[float, typer.Option(help="That a call of the LLM takes.")] = 0.0,
    seconds: Annotated[float, typer.Option(help="Of a round, after 3 seconds that do not count.")] = 20.0,
    rounds: int = 3,
    questions: Path = DATA / "hybridqa" / "questions.jsonl",
    corpus: Path = DATA / "hybridqa" / "corpus.jsonl",
) -> None:
    """Measure `rag` beside Hayhooks."""
    with set_up("rag", questions, corpus, llm_seconds) as (own, index, url, chat), ExitStack() as running:
        passages = int(load_system("rag").configure({}).model_dump()["k"])
        sides = {
            "Hayhooks": hayhooks(own, peer, index, url, passages, index.parent),
            "pyfast serve": served(own, index, f"openai:m@{url}", "rag", 64, None),
        }
        ready = {name: running.enter_context(side) for name, side in sides.items()}
        for at, _ in ready.values():
            checked(at, url, chat[:20])
        loads: dict[str, list[Load]] = {name: [] for name in sides}
        for _ in range(rounds):
            for name, (at, serving) in ready.items():
                loads[name].append(
                    asyncio.run(loaded(at, "/v1/chat/completions", chat, clients, seconds, serving.pid))
                )
                sleep(2)
    show(loads, "Hayhooks")


def show(loads: dict[str, list[Load]], base: str = "the engine") -> None:
    """Medians of the rounds; ratios within each round."""
    columns = ("", "answers/s", f"of {base}", "ms of processor an answer", f"by that, of {base}")
    table = Table(*columns, "p50, ms", "p99, ms", "p99 / p50", "MB: begin, middle, end", "faults")
    engine = next(iter(loads.values()))
    for name, rounds in loads.items():
        if not all(one.answers for one in (*rounds, *engine)):
            table.add_row(name, "no answer in a round", *[""] * 7, str(sum(one.faults for one in rounds)))
            continue
        shares = [one.rate / base.rate for one, base in zip(rounds, engine, strict=True)]
        memory = rounds[-1].memory
        thrift = [base.each_ms / one.each_ms for one, base in zip(rounds, engine, strict=True)]
        table.add_row(
            name,
            f"{median(one.rate for one in rounds):,.0f}",
            f"{median(shares):.0%} ({min(shares):.0%} to {max(shares):.0%})",
            f"{median(one.each_ms for one in rounds):.2f}",
            f"{median(thrift):.0%} ({min(thrift):.0%} to {max(thrift):.0%})",
            f"{median(1000 * one.p50 for one in rounds):.0f}",
            f"{median(1000 * one.p99 for one in rounds):.0f}",
            f"{median(one.p99 / one.p50 for one in rounds):.2f}",
            ", ".join(f"{memory[place]:.0f}" for place in (0, len(memory) // 2, -1)),
            str(sum(one.faults for one in rounds)),
        )
    Console(width=160).print(table)


if __name__ == "__main__":
    app()
