"""Dense vectors by an embedding model on a server with OpenAI's embeddings API."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache, partial
from threading import Lock
from typing import Any

import numpy as np

from pyfast.errors import InputError
from pyfast.llm.endpoints import PROBE, Endpoint, split_options
from pyfast.llm.server_calls import parse_spec
from pyfast.ops.arrays import Float32
from pyfast.retrieval.vectors.embeddings import TEXTS, Embedder, cut
from pyfast.retrieval.vectors.vector_search import unit

_FORMAT = "encoding_format"


class _Embeddings(Endpoint):
    """The requests for embeddings. The value of a text is its vector."""

    name = "embed"
    device = "cpu"
    mixes = False
    known: int | None = None
    """The length of the vectors in the index. None: a request finds it out"""
    _is_coded = True  # until a server refuses base64, which is a quarter of the size of numbers as text

    def request(self, texts: Sequence[str], query: str) -> tuple[str, Mapping[str, Any]]:
        return "/embeddings", {"input": list(texts), **({_FORMAT: "base64"} if self._is_coded else {})}

    def adapts(self, complaint: str) -> bool:
        was_coded, self._is_coded = self._is_coded, self._is_coded and _FORMAT not in complaint
        return was_coded != self._is_coded

    def read(self, texts: int, data: Any) -> list[Float32]:
        items = self.in_order(data.get("data") if isinstance(data, dict) else None, texts)
        vectors = [self._vector(item.get("embedding")) for item in items]
        if len({len(vector) for vector in vectors}) > 1:
            raise self.fault("vectors of different lengths")
        return vectors

    @cached_property
    def dimensions(self) -> int:
        """The length of a vector."""
        return self.known or len(self.values([(PROBE, "")])[0][0])

    def tokens(self, texts: Sequence[str]) -> list[str]:
        """Return the texts: the server finds their tokens."""
        return list(texts)

    def vectors(self, texts: Sequence[str]) -> Float32:
        """Compute the vectors of texts, each of length 1. Raises `InputError` if they do not have the known
        length."""
        made: Float32 = np.array(self.values([(texts, "")])[0], np.float32)
        if made.shape[1] != self.dimensions:
            raise InputError(f"{self.spec}: its vectors have {made.shape[1]} dimensions, not {self.dimensions}")
        return unit(made)

    def _vector(self, given: object) -> Float32:
        try:
            if isinstance(given, str):
                vector = np.frombuffer(base64.b64decode(given, validate=True), "<f4").astype(np.float32)
            else:
                with np.errstate(over="ignore"):
                    vector = np.array(given, np.float64).astype(np.float32)
        except (ValueError, TypeError):
            raise self.fault("a vector that is neither a list of numbers nor base64") from None
        if vector.ndim != 1 or not len(vector) or not np.isfinite(vector).all():
            raise self.fault("a vector that is not a list of finite numbers")
        return vector


class EndpointEmbedder(Embedder):
    """An embedding model on a server.

    If the server rounds differently in another batch, the last bits of a text's vector depend on the other texts.
    """

    is_on_server = True

    def __init__(self, name: str, dimensions: int | None = None) -> None:
        """`name` is `openai:MODEL@URL`, and then the options of the server as JSON. `dimensions` is the
        length of the vectors in the index.

        Raises `InputError` if the text has another form.
        """
        self._turn, self._known = Lock(), {}
        spec, options = split_options(name)
        model, url = parse_spec(spec.rstrip("/").removesuffix("/embeddings"))
        self._server = _Embeddings(spec, model, url, options, TEXTS)
        self._server.known = dimensions

    @cached_property
    def fingerprint(self) -> str:
        """The name of the model, with the fields of `extra`. It does not depend on the server."""
        return self._server.fingerprint

    @cached_property
    def _model(self) -> Any:
        return self._server

    @cached_property
    def _batches(self) -> Any:
        # The server's limits are not known yet.
        return partial(cut, sizes=lambda length: (1, 1 << 30), mixed=True)


@lru_cache(maxsize=4)
def open_endpoint(name: str, dimensions: int | None, key: str) -> EndpointEmbedder:
    """Open an embedding model on a server. All open indexes share it until the API key changes. Raises
    `InputError` as `EndpointEmbedder` does."""
    return EndpointEmbedder(name, dimensions)
