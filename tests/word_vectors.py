"""Vectors of texts from their words alone, made in no time: a stand-in where a test is not about a model's."""

from collections.abc import Sequence
from functools import cache
from zlib import crc32

import numpy as np

from pyfast.ops.arrays import Float32
from pyfast.retrieval.terms import WORDS

DIMENSIONS = 128


@cache
def _word(word: str) -> Float32:
    return np.random.default_rng(crc32(word.encode())).standard_normal(DIMENSIONS).astype(np.float32)


class WordVectors:
    """An `Embedder`: a text's vector is the sum of one for each of its words."""

    fingerprint = "words"
    dimensions = DIMENSIONS

    def __init__(self, model: str = "words", hardware: object = None) -> None:
        self.encoded: list[str] = []

    def encode(self, texts: Sequence[str]) -> Float32:
        self.encoded += texts
        vectors = np.zeros((len(texts), DIMENSIONS), np.float32)
        for row, text in enumerate(texts):
            for word in WORDS.words(text):
                vectors[row] += _word(word)
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
