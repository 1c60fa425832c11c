"""LangChain: a retriever over an index, and a document compressor that ranks with `bridge_rank`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from pyfast.api.index import index_of
from pyfast.api.search import retrieve
from pyfast.integrations import best_places, passage_metadata
from pyfast.utils.extras import explained

with explained():
    from langchain_core.callbacks import Callbacks
    from langchain_core.documents import BaseDocumentCompressor, Document
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.runnables import RunnableConfig
    from langchain_core.runnables.config import get_config_list
    from pydantic import Field, field_validator


class PyfastRetriever(BaseRetriever):
    """A LangChain retriever that searches a pyfast index. `batch` and `abatch` find the passages for all queries
    in one search.

    Example:
        >>> from pyfast.integrations.langchain import PyfastRetriever
        >>> retriever = PyfastRetriever(index="IDX", k=5)
        >>> documents = retriever.invoke("Who discovered Titan?")
        >>> print(documents[0].metadata["uri"], documents[0].page_content)
    """

    index: Any = Field(description="A pyfast index, or its folder")
    k: int = Field(
        default=10, ge=1, description="The maximum number of passages; `invoke(..., k=...)` overrides it"
    )

    @field_validator("index", mode="after")
    @classmethod
    def _opened(cls, index: Any) -> Any:
        return index_of(index)

    def _get_relevant_documents(
        self, query: str, *, run_manager: Any, k: int | None = None, ready: list[Document] | None = None
    ) -> list[Document]:
        return self._documents([query], k)[0] if ready is None else ready

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: Any, k: int | None = None, ready: list[Document] | None = None
    ) -> list[Document]:
        return (await asyncio.to_thread(self._documents, [query], k))[0] if ready is None else ready

    def batch(
        self,
        inputs: list[str],
        config: RunnableConfig | list[RunnableConfig] | None = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> list[list[Document]]:
        """Find the documents for all queries in one search. LangChain's callbacks are called for each query, as
        with `invoke`."""
        try:
            documents = self._documents(inputs, kwargs.get("k"))
        except Exception:  # Search one by one, so that each query raises its own error.
            failed: list[list[Document]] = super().batch(
                inputs, config, return_exceptions=return_exceptions, **kwargs
            )
            return failed
        each = zip(inputs, get_config_list(config, len(inputs)), documents, strict=True)
        return [self.invoke(query, own, **kwargs, ready=ready) for query, own, ready in each]

    async def abatch(
        self,
        inputs: list[str],
        config: RunnableConfig | list[RunnableConfig] | None = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> list[list[Document]]:
        """Find the documents for each query, as `batch` does. The search runs in a thread."""
        try:
            documents = await asyncio.to_thread(self._documents, inputs, kwargs.get("k"))
        except Exception:
            failed: list[list[Document]] = await super().abatch(
                inputs, config, return_exceptions=return_exceptions, **kwargs
            )
            return failed
        each = zip(inputs, get_config_list(config, len(inputs)), documents, strict=True)
        return [await self.ainvoke(query, own, **kwargs, ready=ready) for query, own, ready in each]

    def _documents(self, queries: Sequence[str], k: int | None) -> list[list[Document]]:
        return [
            [
                Document(passage.line, id=passage.segment, metadata=passage_metadata(self.index, passage))
                for passage in passages
            ]
            for passages in retrieve(queries, self.index, self.k if k is None else k)
        ]


class BridgeRankCompressor(BaseDocumentCompressor):
    """Ranks the documents of any retriever with `bridge_rank`, and keeps the best `top_n`.

    A document that shares words with the best documents ranks higher, because it may link the facts of a multi-hop
    question. Each kept document gets its new score in its metadata, as `relevance_score`.

    Example:
        >>> from langchain_core.documents import Document
        >>> from pyfast.integrations.langchain import BridgeRankCompressor
        >>> documents = [Document("Cassini flew by Titan."), Document("Rome is a city.")]
        >>> BridgeRankCompressor(top_n=1).compress_documents(documents, "Which moon did Cassini fly by?")
    """

    top_n: int | None = Field(default=5, ge=1, description="How many documents to keep; None: all, ranked")

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks = None
    ) -> Sequence[Document]:
        """Return the documents to keep for a query, best first."""
        best = best_places(query, [document.page_content for document in documents], self.top_n)
        return [
            documents[place].model_copy(
                update={"metadata": {**documents[place].metadata, "relevance_score": score}}
            )
            for place, score in best
        ]
