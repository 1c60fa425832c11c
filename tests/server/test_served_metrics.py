"""The counts of `/metrics`: each question that ends has a state there, and so does a stream."""

import asyncio
import json
from typing import Any

import pytest
from http_server import TITAN, Gate, Served, serving, until

from pyfast.errors import CallError, LLMUnavailableError
from pyfast.llm import Completion, Request
from pyfast.llm.instant import Instant
from pyfast.retrieval import Index
from pyfast.systems import load_system


class Raising(Gate):
    """Raises the given error."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    async def complete(self, request: Request) -> Completion:
        raise self.error


async def ended(served: Served, state: str) -> float:
    return await served.metric(f'pyfast_questions_total{{state="{state}",system="direct"}}')


async def events(served: Served) -> list[Any]:
    body = {"model": "direct", "messages": TITAN, "stream": True}
    async with served.client.post(served.url + "/v1/chat/completions", json=body) as response:
        lines = (await response.text()).split("\n\n")
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    ("error", "state", "code"),
    [
        (LLMUnavailableError("gone"), "unavailable", "llm_unavailable"),
        (CallError("refused"), "failed", "failed_call"),
    ],
)
async def test_a_question_that_fails_is_counted_with_its_state(
    error: Exception, state: str, code: str, streams: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(None, Raising(error), systems=["direct"]) as served:
        for _ in range(3):
            said = (await events(served))[-1] if streams else (await served.ask())[1]
            assert said["error"]["code"] == code
        assert await ended(served, state) == 3
        failed = [record.getMessage() for record in caplog.records if "failed (" in record.getMessage()]
        assert len(failed) == 3 and all(code in line and str(error) in line for line in failed)


@pytest.mark.parametrize("streams", [False, True])
async def test_a_question_without_an_answer_in_time_is_counted(
    streams: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(None, Gate(), systems=["direct"], limits={"seconds": 1}) as served:
        said = (await events(served))[-1] if streams else (await served.ask())[1]
        assert said["error"]["code"] == "timeout"
        assert await ended(served, "timed_out") == 1
        assert "failed (504 timeout)" in caplog.text


@pytest.mark.parametrize("streams", [False, True])
async def test_a_question_whose_client_leaves_is_counted_with_what_it_used(streams: bool) -> None:
    gate = Gate()
    async with serving(None, gate, systems=["direct"]) as served:
        asking = asyncio.ensure_future(served.ask(stream=streams))
        await until(lambda: gate.working == 1)
        asking.cancel()
        async with asyncio.timeout(20):
            while await ended(served, "cancelled") != 1:
                await asyncio.sleep(0.01)


class Planless(Instant):
    """Its plans are no JSON."""

    async def complete(self, request: Request) -> Completion:
        (plan,) = (it for it in load_system("n2n").prompts if it.name == "plan")
        if request.schema == plan.schema:
            return Completion("I would search.", "stop")
        return await super().complete(request)


async def test_fallbacks_are_counted(small: Index) -> None:
    """The answer has status 200, so a service would not see that no plan is usable."""
    async with serving(small, Planless(), systems=["n2n"]) as served:
        for _ in range(2):
            status, *_ = await served.ask(model="n2n")
            assert status == 200
        assert await served.metric('pyfast_fallbacks_total{prompt="plan",system="n2n"}') == 2
