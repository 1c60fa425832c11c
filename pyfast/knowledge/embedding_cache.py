"""A cache file for the vectors of the snapshot that is being made. If the process is killed, only the last
few vectors must be computed again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from hashlib import blake2b
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from pyfast.ops.arrays import Float32
from pyfast.retrieval.embeddings import Embedder
from pyfast.retrieval.vectors import hashes

BLOCK = 512  # texts between two writes: a kill loses at most these
_CHECK = 16  # bytes of a checksum
_EVERY = 10.0  # seconds between two lines of progress
_log = logging.getLogger("pyfast")


def cached_encoder(path: Path, embedder: Embedder) -> Callable[[Sequence[str]], Float32]:
    """Return a function like `embedder.encode` that uses a cache file. The function takes known vectors from
    the file. It computes all other vectors and appends them to the file.

    Each row of the file has the hash of a text, the text's vector, and a checksum over hash, vector and
    model. If a row is incomplete, damaged or made with another model, this row and all later rows are
    deleted. Their vectors are computed again. Only one process at a time may use the file.
    """
    model = blake2b(embedder.fingerprint.encode()).digest()

    def encode(texts: Sequence[str]) -> Float32:
        names = hashes(texts)
        dtype = np.dtype(
            [("name", names.dtype), ("vector", np.float32, embedder.dimensions), ("check", f"V{_CHECK}")]
        )
        cached = _whole(path, dtype, model)
        held = {name: place for place, name in enumerate(cached["name"].tolist())}
        rows = np.empty(len(texts), dtype)
        rows["name"] = names
        missing = []
        for i, name in enumerate(names.tolist()):
            if name in held:
                rows["vector"][i] = cached["vector"][held[name]]
            else:
                missing.append(i)
        missing.sort(key=lambda i: len(texts[i]))  # Texts of about the same length share a batch.
        progress = _Progress(len(missing))
        for first in range(0, len(missing), BLOCK):
            progress.tell(first)
            block = missing[first : first + BLOCK]
            rows["vector"][block] = embedder.encode([texts[i] for i in block])
            with path.open("ab") as file:
                file.writelines(_checked(row.tobytes(), model) for row in rows[block])
        return np.ascontiguousarray(rows["vector"])

    return encode


class _Progress:
    """Logs from time to time how many texts have vectors, and how long the other texts will take."""

    def __init__(self, texts: int) -> None:
        self._texts = texts
        self._began = self._reported = monotonic()

    def tell(self, done: int) -> None:
        now = monotonic()
        if done and now - self._reported >= _EVERY:
            self._reported = now
            left = (now - self._began) * (self._texts - done) / done
            _log.info("%d of %d vectors; about %s left", done, self._texts, timedelta(seconds=round(left)))


def _whole(path: Path, dtype: np.dtype[Any], model: bytes) -> Any:
    """Return the rows of the file before the first damaged row. The rest of the file is deleted."""
    count = 0
    with path.open("a+b") as file:
        file.seek(0)
        while (row := file.read(dtype.itemsize)) and row == _checked(row, model):
            count += 1
        file.truncate(count * dtype.itemsize)
    return np.memmap(path, dtype, "r", shape=count) if count else np.empty(0, dtype)


def _checked(row: bytes, model: bytes) -> bytes:
    """Compute the checksum of a row, write it into the last bytes of the row, and return the row.

    If the result equals `row`, this row is not damaged.
    """
    contents = row[:-_CHECK]
    return contents + blake2b(contents, digest_size=_CHECK, key=model).digest()
