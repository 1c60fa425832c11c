"""The tools of `pyfast mcp`, called by the official SDK's own client, over both transports, in real processes."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from mcp import Client, StdioServerParameters

import pyfast
from pyfast.errors import InputError
from pyfast.server.mcp import mcp_server

ARGUMENTS = ["--llm", "instant", "--system", "rag", "--set", "k=3"]


@asynccontextmanager
async def over_stdio(index: Path) -> AsyncIterator[Client]:
    command = [*("-m", "pyfast", "mcp", str(index)), *ARGUMENTS]
    async with Client(StdioServerParameters(command=sys.executable, args=command)) as client:
        yield client


@pytest.fixture(scope="module")
def http(small: pyfast.Index) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "pyfast", "mcp", str(small.folder), *ARGUMENTS, "--http", "--port", str(port)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while socket.socket().connect_ex(("127.0.0.1", port)):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    yield f"http://127.0.0.1:{port}/mcp"
    process.terminate()
    _, told = process.communicate(timeout=20)
    assert told.count(b"serving MCP at") == 1, told


async def called(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert isinstance(result.structured_content, dict)
    return result.structured_content


async def all_tools(client: Client, small: pyfast.Index) -> None:
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(tools) == {"search", "answer", "read_source"} and all(tool.output_schema for tool in tools.values())
    found = (await called(client, "search", query="Who discovered Titan?", k=3))["passages"]
    pool = small.search("Who discovered Titan?", 3)[0]
    assert [one["uri"] for one in found] == [small.uri(passage) for passage in pool.passages.tolist()]
    assert [one["score"] for one in found] == pytest.approx(pool.scores.tolist(), abs=1e-5)
    reply = await called(client, "answer", question="Who discovered Titan?")
    settings = {"k": 3}
    asked = ["Who discovered Titan?"]
    (record,) = pyfast.answer(asked, index=small, llm="instant", system="rag", settings=settings).records
    assert (reply["state"], reply["answer"]) == (record.state, record.answer) and reply["llm_calls"] == 1
    assert [one["uri"] for one in reply["evidence"]] == [item.uri for item in record.evidence]
    for uri in dict.fromkeys(one["uri"] for one in found):
        source = await called(client, "read_source", uri=uri)
        part = await called(client, "read_source", uri=uri, start=5, characters=20)
        assert source["characters"] == len(source["text"]) > 0 and part["text"] == source["text"][5:25]


async def test_over_standard_input_and_output(small: pyfast.Index) -> None:
    async with over_stdio(small.folder) as client:
        await all_tools(client, small)


async def test_over_http_with_several_clients(small: pyfast.Index, http: str) -> None:
    async def one() -> None:
        async with Client(http) as client:
            await all_tools(client, small)

    await asyncio.gather(*(one() for _ in range(4)))


async def test_faults_are_errors_of_the_call_and_the_server_goes_on(http: str) -> None:
    async with Client(http) as client:
        names = "query, k, start, max_tokens, filter, documents"
        calls: list[tuple[str, dict[str, Any], str]] = [
            ("read_source", {"uri": "nowhere"}, "uri: there is no document 'nowhere'"),
            ("search", {"query": "x", "k": 0}, "k should be greater than or equal to 1"),
            (
                "search",
                {"query": "x", "k": 2.5},
                "k should be a valid integer, got a number with a fractional part",
            ),
            ("search", {}, "query is missing"),
            ("search", {"query": "x", "limit": 3}, f"limit is not an argument of this tool, which has {names}"),
            ("search", {"query": "x", "filter": [3]}, "filter.0 should be a valid string"),
            ("search", {"k": 101}, "query is missing; k should be less than or equal to 100"),
            ("answer", {"question": ""}, "question should have at least 1 character"),
            ("answer", {"question": 7}, "question should be a valid string"),
        ]
        for tool, arguments, told in calls:
            result = await client.call_tool(tool, arguments)
            (content,) = result.content
            assert result.is_error and content.text == f"Error executing tool {tool}: {told}"  # type: ignore[union-attr]
        assert (await called(client, "search", query="moon"))["passages"]


async def test_an_llm_that_fails_does_not_name_its_address(small: pyfast.Index) -> None:
    async def refuse(_: web.Request) -> web.Response:
        return web.Response(status=404 if _.method == "GET" else 500)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", refuse)
    async with TestServer(app) as llm:
        spec = f"openai:m@http://127.0.0.1:{llm.port}"
        async with Client(mcp_server(small, spec, llm_options={"attempts": 1}, system="rag")) as client:
            result = await client.call_tool("answer", {"question": "Who?"})
            assert result.is_error and "the LLM does not answer" in str(result.content)
            assert str(llm.port) not in str(result.content)


async def test_a_system_of_a_module_answers(small: pyfast.Index) -> None:
    async with Client(mcp_server(small, "instant", system="echo_system:SYSTEM")) as client:
        assert (await called(client, "answer", question="Who discovered Titan?"))[
            "answer"
        ] == "Who discovered Titan?"


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "example.org"])
def test_only_this_machine_is_served(small: pyfast.Index, host: str) -> None:
    with pytest.raises(InputError, match="only a local address is allowed"):
        pyfast.serve_mcp(small, "instant", transport="http", host=host)


def test_a_new_commit_is_seen(small: pyfast.Index, tmp_path: Path) -> None:
    """The server runs on while the index changes: search, titles and sources are those of the new commit."""
    shutil.copytree(small.folder, tmp_path / "IDX")
    (tmp_path / "new.md").write_text("# Zerzura\n\nZerzura is a lost oasis west of the Nile.\n", encoding="utf-8")

    async def changed() -> None:
        async with over_stdio(tmp_path / "IDX") as client:
            before = (await called(client, "search", query="lost oasis Zerzura"))["passages"]
            assert not any("Zerzura" in one["text"] for one in before)
            await asyncio.to_thread(pyfast.add_documents, tmp_path / "IDX", tmp_path / "new.md")
            (best, *_) = (await called(client, "search", query="lost oasis Zerzura"))["passages"]
            assert best["title"] == "Zerzura" and "west of the Nile" in best["text"]
            source = await called(client, "read_source", uri=best["uri"])
            assert "lost oasis" in source["text"] and source["title"] == "Zerzura"

    asyncio.run(changed())
