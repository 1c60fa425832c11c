"""An LLM that is down, refuses, or says nothing: what clients, health checks, metrics and the log hear of it."""

import asyncio
import time

import pytest
from failing_llm import failing_llm
from http_server import Served, serving


async def ready(served: Served) -> int:
    async with served.client.get(served.url + "/ready") as reply:
        return reply.status


async def until_ready(served: Served, status: int, seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while await ready(served) != status:
            await asyncio.sleep(0.1)


def told(caplog: pytest.LogCaptureFixture, text: str) -> int:
    return sum(text in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(("attempts", "most"), [(1, 1), (3, 3)])
async def test_a_rate_limit_that_lets_no_call_through_counts_as_attempts(attempts: int, most: int) -> None:
    async with failing_llm() as llm:
        llm.mode = "429"
        options = {"llm_options": {"attempts": attempts}}
        async with serving(None, f"openai:m@{llm.url}", systems=["direct"], **options) as served:
            began = time.monotonic()
            status, said, headers = await served.ask()
            assert (status, said["error"]["code"]) == (503, "llm_unavailable")
            assert headers["Retry-After"] == "1"
            assert llm.questions == most and llm.probes == 1
            assert time.monotonic() - began < 15
            assert await ready(served) == 503


async def test_a_test_call_that_is_repeated_is_the_only_one() -> None:
    async with failing_llm() as llm:
        llm.mode = "500"
        options = {"llm_options": {"attempts": 5}}
        async with serving(None, f"openai:m@{llm.url}", systems=["direct"], **options) as served:
            assert (await served.ask())[0] == 503
            assert (llm.questions, llm.probes) == (5, 5)


async def test_test_calls_respect_the_pause_that_the_llm_asks_for() -> None:
    async with failing_llm() as llm:
        llm.mode, llm.retry_after = "429", "100"
        options = {"llm_options": {"attempts": 1}}
        async with serving(None, f"openai:m@{llm.url}", systems=["direct"], **options) as served:
            assert (await served.ask())[0] == 503
            until = time.monotonic() + 5
            while time.monotonic() < until:
                assert await ready(served) == 503
                await asyncio.sleep(0.1)
            assert llm.probes == 1


async def test_no_question_asks_an_llm_during_a_long_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyfast.llm.openai.LONGEST_PAUSE", 1.0)
    async with failing_llm() as llm:
        llm.mode, llm.retry_after = "429", "8"
        async with serving(None, f"openai:m@{llm.url}", systems=["direct"]) as served:
            assert (await served.ask())[0] == 503
            refused, llm.mode = time.monotonic(), "ok"
            for _ in range(3):
                status, said, headers = await served.ask()
                assert (status, said["error"]["code"]) == (503, "llm_unavailable")
                assert 1 <= int(headers["Retry-After"]) <= 8
            assert (llm.questions, llm.probes) == (1, 1)
            await until_ready(served, 200)
            assert time.monotonic() - refused > 7
            assert (await served.ask())[0] == 200


async def test_a_start_that_failed_is_not_repeated_before_the_llm_allows_it() -> None:
    async with failing_llm() as llm:
        llm.mode, llm.window, llm.retry_after = "503", 8192, "5"
        options = {"llm_options": {"attempts": 1}}
        async with serving(None, f"openai:m@{llm.url}", systems=["direct"], **options) as served:
            status, _, headers = await served.ask()
            assert (status, headers["Retry-After"]) == (503, "5")
            llm.mode = "ok"
            await asyncio.sleep(3)
            assert await ready(served) == 503 and llm.listed == 1
            await until_ready(served, 200)
            assert llm.listed == 2


@pytest.mark.parametrize("how", ["killed", "500", "429", "given up"])
async def test_it_is_not_ready_after_the_first_question_without_an_answer(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The limit of the server, or the patience of the client, is shorter than all attempts together."""
    caplog.set_level("INFO")
    async with failing_llm() as llm:
        options = {"limits": {"seconds": 60.0 if how == "given up" else 1.0}}
        async with serving(None, f"openai:m@{llm.url}", systems=["direct"], **options) as served:
            assert (await served.ask())[0] == 200 and await ready(served) == 200
            port = int(llm.url.rpartition(":")[2])
            if how in ("429", "500"):
                llm.mode, llm.retry_after = how, "5"
            else:
                await llm.die()
            if how == "given up":
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(served.ask(), 1.0)
                await asyncio.sleep(0.2)
            else:
                assert (await served.ask())[0] == 504
            assert await ready(served) == 503
            assert told(caplog, "the LLM is down: ") == 1 and llm.url in caplog.text
            if how in ("429", "500"):
                llm.mode = "ok"
            else:
                await llm.listen(port)
            await until_ready(served, 200)
            assert told(caplog, "the LLM answers again") == 1 and told(caplog, "the LLM is down: ") == 1


async def test_a_key_that_is_refused_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    async with failing_llm() as llm:
        llm.mode, llm.window = "401", 8192
        async with serving(None, f"openai:m@{llm.url}", systems=["direct"]) as served:
            assert await ready(served) == 503 and told(caplog, "check OPENAI_API_KEY") == 1
            llm.mode = "ok"
            await until_ready(served, 200)
            assert (await served.ask())[0] == 200


async def test_a_client_that_leaves_a_slow_llm_does_not_make_it_count_as_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with failing_llm() as llm, serving(None, f"openai:m@{llm.url}", systems=["direct"]) as served:
        assert (await served.ask())[0] == 200
        llm.mode = "hang"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(served.ask(), 0.5)
        llm.mode = "ok"
        for _ in range(10):
            assert await ready(served) == 200
            await asyncio.sleep(0.1)
        assert llm.probes == 1 and not told(caplog, "the LLM is down: ")


async def test_an_llm_that_says_nothing_is_out_when_a_test_call_gets_no_reply(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pyfast.engine.outages._PROBES_S", (0.2, 0.2, 0.2))
    async with failing_llm() as llm:
        options = {"limits": {"seconds": 1.0}}
        async with serving(None, f"openai:m@{llm.url}", systems=["direct"], **options) as served:
            llm.mode = "hang"
            assert (await served.ask())[0] == 504
            await until_ready(served, 503)
            assert told(caplog, "the LLM is down: ") == 1
            llm.mode = "ok"
            await until_ready(served, 200)
