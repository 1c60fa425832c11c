"""The HTTP backend beside OpenAI's own client, against a server that answers at once."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from measuring import FIGURES, Figure

from pyfast.llm import Request, dialogue, open_llm
from pyfast.llm.chat import closed

HERE = Path(__file__).parent
REQUESTS = 256  # a round
IN_FLIGHT = (16, 64)
GOAL = 4.0

SCHEMA = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}

Send = Callable[[Request], Awaitable[str]]
Measure = Callable[[str, float | None, Send, int, int], None]
"""(who, goal, how one request is sent, how many at once, rounds)"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The server, in a process of its own."""
    with subprocess.Popen([sys.executable, HERE / "at_once.py"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
        server.kill()


@pytest.fixture(scope="module")
def requests() -> list[Request]:
    """Evidence of 6 kB, of the examples' passages, and a question."""
    passages = sorted((HERE.parent / "examples" / "corpus" / "passages").glob("*.md"))
    text = "\n\n".join(path.read_text(encoding="utf-8") for path in passages)
    starts = [number * 211 % (len(text) - 6000) for number in range(REQUESTS)]
    users = [f"{text[at : at + 6000]}\n\nQuestion {number}: who?" for number, at in enumerate(starts)]
    return [Request(dialogue(user, "Answer from the evidence, in JSON."), 100, SCHEMA) for user in users]


@pytest.fixture
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


async def all_answers(send: Send, requests: list[Request], in_flight: int) -> list[str]:
    """The answers, in the order of the requests."""
    answers = [""] * len(requests)
    waiting = iter(enumerate(requests))

    async def work() -> None:
        for number, request in waiting:
            answers[number] = await send(request)

    await asyncio.gather(*(work() for _ in range(in_flight)))
    return answers


@pytest.fixture
def measure(benchmark: Any, loop: asyncio.Runner, requests: list[Request]) -> Measure:
    def measured(who: str, goal: float | None, send: Send, in_flight: int, rounds: int) -> None:
        op = benchmark.group = f"openai backend, {in_flight} in flight"
        run = lambda: loop.run(all_answers(send, requests, in_flight))  # noqa: E731
        benchmark.pedantic(run, rounds=rounds, warmup_rounds=1)
        if benchmark.stats is not None:  # None: --benchmark-disable
            FIGURES.append(Figure(op, who, benchmark.stats.stats.median / REQUESTS * 1e6, goal))

    return measured


@pytest.fixture
def pyfast(loop: asyncio.Runner, url: str) -> Iterator[Send]:
    backend = open_llm(f"openai:m@{url}")  # its slots are 64

    async def send(request: Request) -> str:
        return (await backend.complete(request)).text

    loop.run(backend.start())
    yield send
    loop.run(backend.close())


@pytest.fixture
def async_openai(loop: asyncio.Runner, url: str) -> Iterator[Send]:
    openai = pytest.importorskip("openai", reason="openai is not installed: pip install 'pyfast-qa[bench]'")
    client = openai.AsyncOpenAI(base_url=url, api_key="none")
    shape = {"name": "Answer", "strict": True, "schema": closed(SCHEMA)}

    async def send(request: Request) -> str:
        completion = await client.chat.completions.create(
            model="m",
            messages=[{"role": said.role, "content": said.content} for said in request.messages],
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            seed=request.seed,
            response_format={"type": "json_schema", "json_schema": shape},
        )
        return str(completion.choices[0].message.content)

    yield send
    loop.run(client.close())


@pytest.mark.parametrize("in_flight", IN_FLIGHT)
def test_pyfast(pyfast: Send, measure: Measure, in_flight: int) -> None:
    measure("pyfast", None, pyfast, in_flight, 40)


@pytest.mark.parametrize("in_flight", IN_FLIGHT)
def test_async_openai(
    request: pytest.FixtureRequest,
    loop: asyncio.Runner,
    pyfast: Send,
    async_openai: Send,
    requests: list[Request],
    measure: Measure,
    in_flight: int,
) -> None:
    if request.config.getoption("refcheck"):
        expected = [f'{{"answer": "{number}"}}' for number in range(REQUESTS)]
        for send in (pyfast, async_openai):
            assert loop.run(all_answers(send, requests, in_flight)) == expected
    measure("AsyncOpenAI", GOAL, async_openai, in_flight, 8)
