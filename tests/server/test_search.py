"""`/v1/retrieve` and `/v1/rerank`, without an LLM."""

from typing import Any

import pytest
from http_server import serving

import pyfast
from pyfast.api.search import rerank_texts


async def test_searches_work_while_the_llm_is_down(small: pyfast.Index) -> None:
    async with serving(small, "openai:m@http://127.0.0.1:9", llm_options={"attempts": 1}) as served:
        assert (await served.ask())[0] == 503
        status, said, _ = await served.post("/v1/retrieve", {"query": "moons of Saturn", "filter": "source=*"})
        assert status == 200 and said["results"]


async def test_retrieve_finds_what_the_engine_finds(small: pyfast.Index) -> None:
    async with pyfast.Engine(small, "instant") as engine:
        expected = await engine.retrieve("moons of Saturn", 5)
    async with serving({"one": small, "two": small}, "instant") as served:
        for name in (None, "one", "two"):
            status, found, _ = await served.post(
                "/v1/retrieve", {"query": "moons of Saturn", "k": 5, "index": name}
            )
            assert (status, found["index"]) == (200, name or "one")
            assert [(one["uri"], one["snippet"], one["score"]) for one in found["results"]] == [
                (one.uri, one.snippet, one.score) for one in expected
            ]
            assert found["results"][0]["title"] == small.title(expected[0].uri)
        assert (await served.post("/v1/retrieve", {"query": "moons", "index": "three"}))[0] == 404


@pytest.mark.parametrize("fields", [{"k": 0}, {"k": 1001}, {"k": True}, {"query": ""}, {"query": "x" * 9000}])
async def test_a_search_that_cannot_be_is_refused(small: pyfast.Index, fields: dict[str, Any]) -> None:
    async with serving(small, "instant") as served:
        assert (await served.post("/v1/retrieve", {"query": "moons", **fields}))[0] == 400


async def test_rerank_in_the_common_form() -> None:
    texts = ["Cassini flew by Titan.", "Rome is a city.", "Titan was discovered by Huygens."]
    query = "Which moon did Cassini fly by, and who discovered it?"
    expected = rerank_texts(query, texts)
    async with serving(None, "instant") as served:
        body = {"model": "any", "query": query, "documents": [texts[0], {"text": texts[1]}, texts[2]], "top_n": 2}
        status, found, _ = await served.post("/v1/rerank", body)
        assert status == 200
        best = sorted(range(3), key=lambda place: -expected[place])[:2]
        assert [one["index"] for one in found["results"]] == best and 1 not in best
        assert [one["relevance_score"] for one in found["results"]] == [expected[place] for place in best]
        assert found["results"][0]["document"] == {"text": texts[best[0]]}
        _, bare, _ = await served.post("/v1/rerank", {**body, "return_documents": False})
        assert all("document" not in one for one in bare["results"])
        assert (await served.post("/v1/rerank", {**body, "documents": ["a"] * 1001}))[0] == 400
