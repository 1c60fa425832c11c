"""A reranker on an HTTP server: vLLM, Text Embeddings Inference (TEI), Cohere, Jina."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from pyfast.errors import CallError, InputError, RefusalError
from pyfast.llm.endpoints import PROBE, Endpoint, split_options
from pyfast.llm.protocol import ServerCall
from pyfast.llm.redaction import api_key
from pyfast.llm.server_calls import Refused, parse_spec
from pyfast.ops.arrays import Float32, Int32
from pyfast.retrieval.index.index import Index
from pyfast.utils.log import LOG

_FORMS = (("/rerank", "documents"), ("/rerank", "texts"), ("/v1/rerank", "documents"), ("/v2/rerank", "documents"))
"""The path of a request, and the name of the field with the passages"""
_OTHER = (404, 405)
"""The statuses, besides 400 and 422, of a server that expects a different path or form"""
_PASSAGES = 64


class _Scores(Endpoint):
    """The requests for scores. The value of a text is its score."""

    name = "rerank"
    _form, _is_found = _FORMS[0], False

    def request(self, texts: Sequence[str], query: str) -> tuple[str, Mapping[str, Any]]:
        path, field = self._form
        return path, {"query": query, field: list(texts)}

    def read(self, texts: int, data: Any) -> list[float]:
        items = self.in_order(data.get("results") if isinstance(data, dict) else data, texts)
        scores = [item.get("relevance_score", item.get("score")) for item in items]
        if not all(isinstance(score, int | float) and math.isfinite(score) for score in scores):
            raise self.fault("a score that is not a finite number")
        return scores

    async def prepare(self, calls: list[ServerCall]) -> None:
        """Find out by small requests which path and which form the server takes. Raises `InputError` if it takes
        none."""
        said: list[object] = []
        for form in () if self._is_found else _FORMS:
            self._form = form
            try:
                await self.ask(PROBE, PROBE[0], calls)
            except (Refused, CallError) as error:
                said.append(error)
            except RefusalError as error:
                if error.status not in _OTHER:
                    raise
                said.append(error)
            else:
                self._is_found = True
                LOG.info("%s accepts requests at %s with the field %s", self.spec, *form)
                return
        if said:
            raise InputError(
                f"{self.spec} accepts none of the rerank request formats that pyfast supports: {said[0]}"
            )


class EndpointReranker:
    """A reranker on a server, which reads each passage together with the query."""

    def __init__(self, index: Index, name: str = "") -> None:
        """`name` is `URL#MODEL`, and then the options of the server as JSON. Without `#MODEL`, the server
        has one model.

        Raises `InputError` if the text has another form.
        """
        self._index, self._server = index, _opened(name, api_key())

    @property
    def fingerprint(self) -> str:
        """The name of the model, with the fields of `extra`. If the model has no name, the URL."""
        named = "" if self._server.model else self._server.spec
        return f"http:{named}{self._server.fingerprint.partition(':')[2]}"

    def score(self, queries: Sequence[str], passages: Sequence[Int32]) -> list[Float32]:
        """For each query, compute the scores of its passages. The scale of the scores depends on the model."""
        texts = [[self._index.text(passage) for passage in some.tolist()] for some in passages]
        scores = self._server.values(list(zip(texts, queries, strict=True)))
        return [np.array(some, np.float32) for some in scores]


@lru_cache(maxsize=4)  # All open indexes share it, so the form of a request is found out only once.
def _opened(name: str, key: str) -> _Scores:
    spec, options = split_options(f"http:{name}" if name.startswith("//") else name)
    url, _, model = spec.partition("#")
    _, base_url = parse_spec(f"openai:{model or 'rerank'}@{url.rstrip('/').removesuffix('/rerank')}")
    if base_url.count("/") == 3 and not urlsplit(url).path.startswith("/v1"):
        base_url = base_url.removesuffix("/v1")  # `parse_spec` adds it for chat completions.
    return _Scores(spec, model, base_url, options, _PASSAGES)


open_endpoint_reranker = EndpointReranker
"""The entry point of the reranker `http`"""
