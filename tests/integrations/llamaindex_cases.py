"""The retriever and the postprocessor in LlamaIndex's own query engine."""

import pytest
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

import pyfast
from pyfast.api.search import rerank_texts
from pyfast.errors import InputError
from pyfast.integrations.llamaindex import BridgeRankPostprocessor, PyfastRetriever

TITAN = "Who discovered Titan?"


async def test_the_nodes_are_the_passages_of_the_index(small: pyfast.Index) -> None:
    retriever = PyfastRetriever(str(small.folder), k=4)
    nodes = retriever.retrieve(TITAN)
    (pool,) = small.search(TITAN, 4)
    assert [node.score for node in nodes] == pytest.approx(pool.scores.tolist())
    assert [node.node_id for node in await retriever.aretrieve(TITAN)] == [node.node_id for node in nodes]
    assert small.title(nodes[0].metadata["uri"]) == nodes[0].metadata["title"]
    with pytest.raises(InputError):
        PyfastRetriever(small, k=0)


async def test_the_postprocessor_ranks_with_bridge_rank() -> None:
    texts = ["Rome is a city.", "Cassini flew by Titan.", "Titan was discovered by Huygens.", "Paris"]
    query = "Which moon did Cassini fly by, and who discovered it?"
    nodes = [NodeWithScore(node=TextNode(text=text, metadata={"noise": "Cassini"})) for text in texts]
    scores = rerank_texts(query, texts)
    ranker = BridgeRankPostprocessor(top_n=3)
    best = ranker.postprocess_nodes(nodes, query_str=query)
    assert [node.score for node in best] == sorted(scores, reverse=True)[:3]
    assert all(scores[texts.index(node.text)] == node.score for node in best)
    again = await ranker.apostprocess_nodes(nodes, QueryBundle(query))
    assert [node.node_id for node in again] == [node.node_id for node in best]
    with pytest.raises(ValueError, match="query"):
        ranker.postprocess_nodes(nodes)


def test_both_in_a_query_engine(small: pyfast.Index) -> None:
    engine = RetrieverQueryEngine.from_args(
        PyfastRetriever(small, k=10), llm=MockLLM(), node_postprocessors=[BridgeRankPostprocessor(top_n=3)]
    )
    response = engine.query(TITAN)
    assert len(response.source_nodes) == 3
    assert all(node.text in str(response) for node in response.source_nodes)  # the mock repeats its prompt
