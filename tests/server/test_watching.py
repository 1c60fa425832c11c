"""What an operator sees of each request: its id, and the lines of the log."""

import asyncio
import json
import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from failing_llm import failing_llm
from http_server import TITAN, process, serving

from pyfast.utils.options import ServerOptions


async def test_an_id_of_the_client_is_kept_if_it_is_sane() -> None:
    async with serving(None, "instant", systems=["direct"]) as served:
        for given, kept in (
            ("abc-1:2/3", True),
            ("a" * 128, True),
            ("a" * 129, False),
            ("a b", False),
            ("<b>", False),
        ):
            async with served.client.get(served.url + "/health", headers={"X-Request-Id": given}) as reply:
                assert (reply.headers["X-Request-Id"] == given) is kept
        ids = set()
        for path, status in (("/health", 200), ("/nowhere", 404), ("/v1/models", 200)):
            async with served.client.get(served.url + path) as reply:
                assert reply.status == status and re.fullmatch("[0-9a-f]{32}", reply.headers["X-Request-Id"])
                ids.add(reply.headers["X-Request-Id"])
        _, _, headers = await served.ask(stream_options=None)
        assert len({*ids, headers["X-Request-Id"]}) == 4


async def test_a_refused_request_counts_for_its_path() -> None:
    async with serving(None, "instant", keys=["K"], limits={"body_bytes": 10}) as served:
        assert (await served.ask())[0] == 401
        given = {"headers": {"Authorization": "Bearer K"}}
        assert (await served.post("/v1/retrieve", {"query": "moons"}, **given))[0] == 413
        async with served.client.get(served.url + "/v1/files/x", headers=given["headers"]) as reply:
            assert reply.status == 404
        async with served.client.get(served.url + "/metrics", headers=given["headers"]) as reply:
            told = await reply.text()
    for path, status in (("/v1/chat/completions", 401), ("/v1/retrieve", 413), ("/v1/files/{file_id}", 404)):
        assert f'pyfast_requests_total{{path="{path}",status="{status}"}} 1.0' in told


async def test_an_unexpected_error_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On a path of FastAPI's router, and on a short one."""

    def fail(*given: object) -> None:
        raise ZeroDivisionError("secret")

    async with serving(None, "instant", systems=["direct"]) as served:
        monkeypatch.setattr(served.app.state.service, "read", fail)
        monkeypatch.setattr(served.app.state.service.metrics, "text", fail)
        status, said, headers = await served.ask()
        assert (status, said["error"]["code"]) == (500, "internal_error") and "secret" not in str(said)
        async with served.client.get(served.url + "/metrics") as reply:
            assert reply.status == 500 and (await reply.json())["error"]["code"] == "internal_error"
    assert len(caplog.records) == 2 and all(record.exc_info for record in caplog.records)
    assert headers["X-Request-Id"] in caplog.records[0].getMessage()


@pytest.mark.parametrize("with_access_log", [False, True])
async def test_lines_of_the_access_log(with_access_log: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with serving(None, "instant", options=ServerOptions(access_log=with_access_log)) as served:
        for path in ("/health", "/a%0Ab"):
            async with served.client.get(served.url + path, headers={"X-Request-Id": "mine"}):
                pass
    lines = [record.getMessage() for record in caplog.records if "request mine" in record.getMessage()]
    assert len(lines) == 2 * with_access_log
    if with_access_log:
        assert re.fullmatch(r'127\.0\.0\.1:\d+ "GET /health" 200 in \d\.\d{3} s, request mine', lines[0])
        assert '"GET /a%0Ab" 404 ' in lines[1]


async def test_lines_of_the_process_have_time_level_and_id(tmp_path: Path) -> None:
    async with failing_llm() as llm:
        llm.mode = "500"
        given = ("--llm", f"openai:m@{llm.url}", "--llm-option", "attempts=1", "--system", "direct")
        await asyncio.to_thread(_ask_once, tmp_path, *given)


def _ask_once(folder: Path, *given: object) -> None:
    with process(folder, *given, "--access-log") as (session, url):
        body = json.dumps({"model": "direct", "messages": TITAN}).encode()
        headers = {"Content-Type": "application/json", "X-Request-Id": "mine"}
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(urllib.request.Request(url + "/v1/chat/completions", body, headers), timeout=60)
        session.until(lambda: "POST" in session.told)
        lines = session.told.splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (INFO|WARNING) ", line) for line in lines), lines
    assert sum("WARNING request mine failed (503 llm_unavailable): " in line for line in lines) == 1
    assert sum('"POST /v1/chat/completions" 503 ' in line for line in lines) == 1
    assert sum("the LLM is down: " in line for line in lines) == 1
