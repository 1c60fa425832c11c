"""LangChain's standard tests of retrievers; and batches, callbacks, faults, the compressor."""

from typing import Any
from unittest.mock import patch

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_tests.integration_tests import RetrieversIntegrationTests

import pyfast
from pyfast.api.search import rerank_texts
from pyfast.errors import InputError
from pyfast.integrations.langchain import BridgeRankCompressor, PyfastRetriever

TITAN = "Who discovered Titan?"
QUERIES = [TITAN, "moons of Mars", "ring of Saturn"]


class TestRetriever(RetrieversIntegrationTests):
    @pytest.fixture(autouse=True)
    def _index(self, small: pyfast.Index) -> None:
        self.index = small

    @property
    def retriever_constructor(self) -> type[PyfastRetriever]:
        return PyfastRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"index": self.index}

    @property
    def retriever_query_example(self) -> str:
        return TITAN


class Heard(BaseCallbackHandler):
    def __init__(self) -> None:
        self.starts: list[str] = []
        self.ends: list[int] = []
        self.errors = 0

    def on_retriever_start(self, serialized: Any, query: str, **_: Any) -> None:
        self.starts.append(query)

    def on_retriever_end(self, documents: Any, **_: Any) -> None:
        self.ends.append(len(documents))

    def on_retriever_error(self, error: BaseException, **_: Any) -> None:
        self.errors += 1


def test_the_documents_are_the_passages_of_the_index(small: pyfast.Index) -> None:
    documents = PyfastRetriever(index=str(small.folder), k=4).invoke(TITAN)
    (pool,) = small.search(TITAN, 4)
    assert [document.metadata["score"] for document in documents] == pytest.approx(pool.scores.tolist())
    assert all(small.title(document.metadata["uri"]) == document.metadata["title"] for document in documents)


async def test_a_batch_is_one_search(small: pyfast.Index) -> None:
    retriever, heard = PyfastRetriever(index=small, k=3), Heard()
    each = [retriever.invoke(query) for query in QUERIES]
    searches: list[list[str]] = []
    search = type(small.retriever).search

    def watched(self: Any, queries: list[str], k: int) -> Any:
        searches.append(list(queries))
        return search(self, queries, k)

    with patch.object(type(small.retriever), "search", watched):
        assert retriever.batch(QUERIES, {"callbacks": [heard]}) == each
        assert await retriever.abatch(QUERIES, {"callbacks": [heard]}) == each
        assert [len(one) for one in retriever.batch(QUERIES, k=2)] == [2, 2, 2]
    assert searches == [QUERIES] * 3
    assert heard.starts == QUERIES * 2 and heard.ends == [3] * 6
    assert retriever.batch([]) == []


def test_a_fault_is_each_query_s_own(small: pyfast.Index) -> None:
    retriever, heard = PyfastRetriever(index=small), Heard()
    faults = retriever.batch(QUERIES, {"callbacks": [heard]}, return_exceptions=True, k=-1)
    assert [type(fault) for fault in faults] == [InputError] * 3
    assert heard.errors == 3
    with pytest.raises(InputError):
        retriever.batch(QUERIES, k=-1)


@pytest.mark.parametrize("top_n", [2, None])
async def test_the_compressor_ranks_with_bridge_rank(top_n: int | None) -> None:
    texts = ["Rome is a city.", "Cassini flew by Titan.", "Titan was discovered by Huygens.", "Paris"]
    query = "Which moon did Cassini fly by, and who discovered it?"
    documents = [Document(text, metadata={"place": place}) for place, text in enumerate(texts)]
    scores = rerank_texts(query, texts)
    expected = sorted(range(4), key=lambda place: -scores[place])[:top_n]
    compressor = BridgeRankCompressor(top_n=top_n)
    best = compressor.compress_documents(documents, query)
    assert [document.metadata["place"] for document in best] == expected
    assert [document.metadata["relevance_score"] for document in best] == [scores[place] for place in expected]
    assert list(await compressor.acompress_documents(documents, query)) == list(best)
    assert "relevance_score" not in documents[1].metadata
    assert compressor.compress_documents([], query) == []
