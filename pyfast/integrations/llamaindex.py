"""LlamaIndex: a retriever over an index, and a node postprocessor that ranks with `bridge_rank`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from pyfast.api.index import index_of
from pyfast.api.search import retrieve
from pyfast.integrations import best_places, passage_metadata
from pyfast.retrieval import Index
from pyfast.utils.extras import explained
from pyfast.utils.options import at_least_one

with explained():
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode
    from pydantic import Field


class PyfastRetriever(BaseRetriever):
    """A LlamaIndex retriever that searches a pyfast index.

    Example:
        >>> from pyfast.integrations.llamaindex import PyfastRetriever
        >>> retriever = PyfastRetriever("IDX", k=5)
        >>> nodes = retriever.retrieve("Who discovered Titan?")
        >>> print(nodes[0].score, nodes[0].text)
    """

    def __init__(self, index: Index | str | Path, k: int = 10, **options: Any) -> None:
        """Open the index.

        Args:
            index: A pyfast index, or its folder.
            k: The maximum number of passages.
            **options: Options of LlamaIndex's `BaseRetriever`.

        Raises:
            InputError: `k` is below 1.
            IndexFormatError: The folder contains no index, or the index is damaged.
        """
        self._index = index_of(index)
        self._k = at_least_one("k", k)
        super().__init__(**options)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        (passages,) = retrieve([query_bundle.query_str], self._index, self._k)
        return [
            NodeWithScore(
                node=TextNode(
                    id_=passage.segment,
                    text=passage.line,
                    metadata=passage_metadata(self._index, passage),
                    excluded_llm_metadata_keys=["score", "offsets"],
                    excluded_embed_metadata_keys=["score", "offsets", "uri"],
                ),
                score=passage.score,
            )
            for passage in passages
        ]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)


class BridgeRankPostprocessor(BaseNodePostprocessor):
    """Ranks the nodes of any retriever with `bridge_rank`, and keeps the best `top_n`, with their new scores.

    Example:
        >>> from llama_index.core.schema import NodeWithScore, TextNode
        >>> from pyfast.integrations.llamaindex import BridgeRankPostprocessor
        >>> nodes = [NodeWithScore(node=TextNode(text=text)) for text in ("Cassini flew by Titan.", "Rome")]
        >>> BridgeRankPostprocessor(top_n=1).postprocess_nodes(nodes, query_str="Which moon did Cassini fly by?")
    """

    top_n: int | None = Field(default=5, ge=1, description="How many nodes to keep; None: all, ranked")

    @classmethod
    def class_name(cls) -> str:
        """The name by which LlamaIndex identifies this class in stored settings."""
        return "BridgeRankPostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is None:
            raise ValueError("BridgeRankPostprocessor needs a query: pass query_str or query_bundle")
        texts = [node.node.get_content(metadata_mode=MetadataMode.NONE) for node in nodes]
        best = best_places(query_bundle.query_str, texts, self.top_n)
        return [NodeWithScore(node=nodes[place].node, score=score) for place, score in best]
