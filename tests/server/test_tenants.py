"""Requests with filters and documents of their own see nothing else, over the engine, HTTP and MCP."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from http_server import TITAN, Served, serving, until
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from mcp import Client
from tenants import TENANTS, WORDS, YEARS, Listening, outside, tenants
from word_vectors import WordVectors

import pyfast
from pyfast.errors import InputError
from pyfast.server import mcp_server

CONDITIONS: dict[str, Callable[[str], bool]] = {
    **{f"source={tenant}/*": lambda uri, tenant=tenant: uri[0] == tenant for tenant in TENANTS},
    "source!=b/*": lambda uri: uri[0] != "b",
    "source=*/text|c/?oons": lambda uri: uri.endswith("/text") or uri == "c/moons",
    "level=table_row": lambda uri: uri.endswith("/moons"),
    "level!=subgraph": lambda uri: not uri.endswith("/facts"),
    "title=TITAN*": lambda uri: uri.endswith(("/text", "/old")),
    "meta.year>=1905": lambda uri: YEARS.get(uri, 0) >= 1905,
    "meta.year=1900|1901": lambda uri: YEARS.get(uri, 2000) <= 1901,
    "source=nowhere": lambda uri: False,
}
SYSTEMS: dict[str, dict[str, Any]] = {
    "n2n": {},
    "rag": {},
    "decompose": {},
    "hseq": {"steps": 2},
    "subqrag": {},
    "mtqa": {"rows": 2, "columns": 2},
    "iter_retgen": {},
    "ircot": {"steps": 2},
    "self_ask": {"follow_ups": 2},
    "react": {"steps": 3},
    "tot": {"candidates": 2, "evaluations": 1},
    "rat": {},
    "ratt": {"nodes": 2, "layers": 1},
    "coa": {},
    "raptor": {},
    "lightrag": {},
    "graphrag": {},
    "searchain": {"rounds": 2},
    "slimplm": {},
    "ttqa_rs": {},
    "rowen": {"wordings": 2},
    "tog": {"depth": 1},
    "hipporag": {},
    "flare": {"sentences": 2},
    "adaptive_rag": {"steps": 2},
    "cascade": {"sure": 1, "then": "n2n,hseq"},
}
FILTERS = st.lists(st.sampled_from(sorted(CONDITIONS)), max_size=2)
DOCUMENTS = st.none() | st.lists(st.sampled_from([*WORDS, "absent"]), min_size=1, max_size=3)


@dataclass
class World:
    runner: asyncio.Runner
    engine: pyfast.Engine
    served: Served
    llm: Listening
    mcp: dict[str, Any]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder, llm, stack = tmp_path_factory.mktemp("tenants") / "IDX", Listening(), AsyncExitStack()
    index = tenants(folder)

    async def begin() -> tuple[pyfast.Engine, Served]:
        engine = await stack.enter_async_context(pyfast.Engine(index, llm, views=3))
        return engine, await stack.enter_async_context(serving(index, llm, systems=SYSTEMS))

    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        patch.setattr("pyfast.knowledge.session.Embedder", WordVectors)
        made = {name: mcp_server(index, llm, system=name, settings=SYSTEMS[name]) for name in SYSTEMS}
        yield World(runner, *runner.run(begin()), llm, made)
        runner.run(stack.aclose())


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(filters=FILTERS, documents=DOCUMENTS, system=st.sampled_from(sorted(SYSTEMS)))
@example(filters=["source=a/*"], documents=None, system="mtqa")
@example(filters=["source=a/*"], documents=["b/text"], system="n2n")
def test_nothing_outside_is_seen(
    world: World, filters: list[str], documents: list[str] | None, system: str
) -> None:
    fits = {uri for uri in WORDS if all(CONDITIONS[one](uri) for one in filters)}
    allowed = fits if documents is None else fits & set(documents)
    can_be = bool(fits) and (documents is None or set(documents) <= fits)
    narrowed = {"filter": filters, "documents": documents}

    def check(shown: str, is_good: bool) -> None:
        assert is_good == can_be, shown
        # An error may repeat the uris that the request itself has.
        named = set(documents or ()) if not can_be else set()
        assert outside(shown, allowed | named) == []
        assert outside("\n".join(world.llm.prompts), allowed) == []
        world.llm.prompts.clear()

    async def by_engine() -> None:
        try:
            record = await world.engine.answer(
                TITAN[0]["content"], system=system, settings=SYSTEMS[system], **narrowed
            )
            check(json.dumps([record.line(), str(record)], default=str), record.state != "failed")
            hits = await world.engine.retrieve("Titan was discovered by", 20, **narrowed)
            assert {hit.uri for hit in hits} == allowed
            check(str(hits), True)
        except InputError as error:
            check(str(error), False)
            assert re.match("filter: no document matches; check|.*is not in the index", str(error))

    async def over_http() -> None:
        sent = {name: value for name, value in narrowed.items() if value}
        for reply in (
            await world.served.ask(system, **sent),
            await world.served.post("/v1/retrieve", {"query": "Titan was discovered by", **sent}),
        ):
            check(json.dumps(reply[1]), reply[0] == 200)
            assert reply[0] in (200, 400, 422)
        if can_be:
            assert {one["uri"] for one in reply[1]["results"]} == allowed

    async def over_mcp() -> None:
        async with Client(world.mcp[system]) as client:
            for tool, question in (("search", "query"), ("answer", "question")):
                result = await client.call_tool(tool, {question: "Who discovered Titan?", **narrowed})
                said = result.structured_content or {}
                check(str(result), not result.is_error and said.get("state") != "failed")

    for way in (by_engine, over_http, over_mcp):
        world.runner.run(way())


def test_requests_with_one_filter_share_batches_and_views_are_few(tmp_path: Path) -> None:
    made: list[list[str]] = []
    searched: list[int] = []

    class Counting(pyfast.Index):
        def fitting(self, filter: Any) -> Any:
            made.append(list(filter))
            return super().fitting(filter)

        def search(self, queries: Any, k: int) -> Any:
            searched.append(len(queries))
            return super().search(queries, k)

    tenants(tmp_path / "IDX")

    async def ask() -> None:
        async with pyfast.Engine(Counting(tmp_path / "IDX"), "instant", views=2) as engine:

            async def one(*conditions: str) -> None:
                assert (await engine.answer("Who discovered Titan?", system="rag", filter=conditions)).answer

            both = ("source=a/*", "level=paragraph")
            await asyncio.gather(*(one(*both[:: (-1) ** at]) for at in range(40)))
            assert len(made) == 1 and max(searched) > 10  # in any order, they are one filter
            await one("source=b/*")
            await one(*both)
            assert len(made) == 2
            await one("source=c/*")  # that of b has to go
            await one(*both)
            assert len(made) == 3 and len(engine._views) == 2
            await one("source=b/*")
            assert len(made) == 4
            for at in range(6):  # One client with many filters takes nobody's view.
                await one(f"title!=nothing {at}")
            await one(*both)
            assert len(made) == 10
            with pytest.raises(InputError, match="no document matches"):
                await one("source=nowhere")
            records = [
                record
                async for record in engine.answer_many(
                    [{"id": "1", "question": "Titan?", "documents": ["a/text", "b/text"]}, "Titan?"],
                    system="rag",
                    filter="source!=c/*",
                    documents=["b/text", "a/old"],
                )
            ]
            uris = [{item.uri for item in record.evidence} for record in records]
            assert uris == [{"b/text"}, {"a/old", "b/text"}]
            for documents in ([], "a/text", ["a/facts"]):
                with pytest.raises(InputError, match="documents"):
                    question = {"question": "Titan?", "documents": ["b/text"]}
                    await engine.answer(question, system="rag", documents=documents)
            wrong: list[Any] = [[""], [1], [None], ["\ud800"], [["a/text"]]]
            for documents in wrong:
                with pytest.raises(InputError, match="documents"):
                    await engine.retrieve("Titan?", documents=documents)
            for filter in [[1], [None]]:
                with pytest.raises(InputError, match="filter"):
                    await engine.retrieve("Titan?", filter=filter)  # type: ignore[arg-type]

    asyncio.run(ask())


async def test_the_views_of_an_old_commit_go(tmp_path: Path) -> None:
    index = tenants(tmp_path / "IDX")
    async with serving(index.folder, "instant", systems=["rag"]) as served:
        sent = {"query": "Titan", "filter": "source=a/*"}
        before = (await served.post("/v1/retrieve", sent))[1]["results"]
        new = {"id": "a/new", "title": "Titan", "text": "Titan is a moon."}
        await asyncio.to_thread(pyfast.add_documents, index.folder, [new])
        after = (await served.post("/v1/retrieve", sent))[1]["results"]
        assert {one["uri"] for one in after} == {*(one["uri"] for one in before), "a/new"}
        (engine,) = served.app.state.service._served.values()
        view = await next(iter(engine._views.values()))
        await until(lambda: view.users == 0)
        assert view.index.commit == 2 and len(engine._views) == 1


async def test_rows_come_with_their_header(tmp_path: Path) -> None:
    async with serving(tenants(tmp_path / "IDX"), "instant") as served:
        sent = {"query": "Titan", "filter": ["level=table_row", "source=a/*"], "k": 1}
        _, body, _ = await served.post("/v1/retrieve", sent)
        (row,) = body["results"]
        assert row.pop("segment") and row.pop("score") > 0
        assert row == {
            "uri": "a/moons",
            "title": f"Moons {WORDS['a/moons']}",
            "section": "Known",
            "header": ["moon", "discoverer"],
            "snippet": f"Titan\t{WORDS['a/moons']}",
            "offsets": [0, -1],
        }


async def test_a_client_changes_only_the_settings_that_the_server_allows(tmp_path: Path) -> None:
    index = tenants(tmp_path / "IDX")
    options = pyfast.ServerOptions(client_settings=["rag.k"])
    async with serving(index, "instant", systems={"rag": {"k": 3}, "n2n": {}}, options=options) as served:

        async def evidence(**fields: Any) -> int:
            status, body, _ = await served.ask("rag", **fields)
            assert status == 200
            return len(body["choices"][0]["message"]["annotations"])

        assert (await evidence(), await evidence(settings={"k": 1}), await evidence()) == (3, 1, 3)
        for model, given_, param in [
            ("rag", {"expand": "os:system"}, "settings.expand"),
            ("rag", {"k": 1, "nothing": 1}, "settings.nothing"),
            ("n2n", {"k": 1}, "settings.k"),
            ("rag", {"k": "many"}, "settings"),
            ("rag", {"k": 0}, "settings"),
        ]:
            status, body, _ = await served.ask(model, settings=given_)
            assert (status, body["error"]["param"]) == (400, param), body
    options = pyfast.ServerOptions(client_settings=["rag.k", "n2n.final_k", "n2n.hop_max"])
    systems = {"rag": {"k": 8}, "n2n": {}}
    async with serving(index, "instant", systems=systems, options=options, limits={"documents": 5}) as served:
        for model, ok, too_many in [("rag", {"k": 5}, {"k": 6}), ("n2n", {"hop_max": 60}, {"final_k": 6})]:
            assert (await served.ask(model))[0] == 200  # The limit is for requests, not for the server's settings.
            assert (await served.ask(model, settings=ok))[0] == 200
            status, body, _ = await served.ask(model, settings=too_many)
            (name,) = too_many
            assert (status, body["error"]["code"], body["error"]["param"]) == (400, "too_many", f"settings.{name}")
            assert body["error"]["message"] == f"settings: {name}: expected at most 5"
    for wrong in ("k", "rag.nothing", "hseq.steps", "decompose.graph"):
        with pytest.raises(InputError, match="client_settings"):
            async with serving(
                index,
                "instant",
                systems=["rag", "decompose"],
                options=pyfast.ServerOptions(client_settings=[wrong]),
            ):
                pass


@pytest.mark.parametrize("path", ["chat/completions", "retrieve", "rerank", "batches"])
@pytest.mark.parametrize("field", ["filters", "document", "setting", "system", "tenant"])
async def test_a_field_that_no_route_has_is_refused(path: str, field: str, tmp_path: Path) -> None:
    good = {
        "chat/completions": {"model": "direct", "messages": TITAN},
        "retrieve": {"query": "Titan"},
        "rerank": {"query": "Titan", "documents": ["Titan"]},
        "batches": {"input_file_id": "x", "endpoint": "/v1/chat/completions", "completion_window": "24h"},
    }
    async with serving(None, "instant", options=pyfast.ServerOptions(jobs=tmp_path)) as served:
        status, body, _ = await served.post(f"/v1/{path}", {**good[path], field: "x"})
        assert (status, body["error"]["param"]) == (400, field)


@pytest.mark.parametrize("kind", ["json_object", "json_schema"])
async def test_another_form_of_the_answer_is_refused(kind: str) -> None:
    async with serving(None, "instant") as served:
        status, body, _ = await served.ask("direct", response_format={"type": kind})
        assert status == 400 and body["error"]["param"] == "response_format.type"


async def test_pages_and_sizes_of_a_search_over_mcp(tmp_path: Path) -> None:
    index = tenants(tmp_path / "IDX")
    only = pyfast.open_index(index.folder, filter="source=a/*|b/*")
    async with Client(mcp_server(only, "instant", system="rag")) as client:

        async def search(**arguments: Any) -> dict[str, Any]:
            result = await client.call_tool("search", {"query": "Titan was discovered by", **arguments})
            assert not result.is_error and isinstance(result.structured_content, dict), result
            return result.structured_content

        whole = await search(k=100)
        assert whole["next"] is None and outside(json.dumps(whole), {u for u in WORDS if u[0] != "c"}) == []
        for size in ({"k": 3}, {"max_tokens": 100}, {"k": 2, "max_tokens": 60}):
            pages: list[Any] = []
            start: int | None = 0
            while start is not None:
                page = await search(start=start, **size)
                assert page["passages"] and len(json.dumps(page["passages"])) <= 3.6 * size.get("max_tokens", 9000)
                pages, start = pages + page["passages"], page["next"]
            assert [one["uri"] for one in pages] == [one["uri"] for one in whole["passages"]]
        widened = await client.call_tool("search", {"query": "Titan", "filter": ["source=c/*"]})
        assert widened.is_error and "no document matches" in str(widened.content)
        for uri in ("c/text", "absent"):
            read = await client.call_tool("read_source", {"uri": uri})
            assert read.is_error and f"no document '{uri}'" in str(read.content)
