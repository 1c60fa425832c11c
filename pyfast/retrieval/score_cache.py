"""A cache of the scores that a reranker has computed. Each pair of a query and a passage is scored only once."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from threading import Lock

import numpy as np

from pyfast.errors import InputError
from pyfast.sqlite_files import fault, open_database

FILE = "rerank_scores.sqlite"
"""The name of the file with the scores of a run, in the folder of the run"""
_KNOWN = 200_000  # the number of scores in memory
_AT_ONCE = 500  # keys in one SQL statement
_CHECK = 4  # bytes of a checksum
_SCHEMA = "CREATE TABLE IF NOT EXISTS scores (pair BLOB PRIMARY KEY, score BLOB NOT NULL) WITHOUT ROWID"


def pair_key(model: str, question: str, passage: str) -> bytes:
    """Compute a hash of 16 bytes for a reranker, a query and a passage. `model` is the fingerprint of the
    reranker.
    """
    digest = blake2b(digest_size=16)
    for text in (model, question, passage):
        encoded = text.encode(errors="replace")
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest.digest()


class ScoreCache:
    """The scores of pairs of a query and a passage, in memory and optionally in a file. Several threads can use
    it.

    If the process is killed, only scores that were not yet given to `add` are lost. A damaged score is
    computed again.
    """

    def __init__(self, path: Path | None = None) -> None:
        """`path` is the file with the scores. None: the scores are only in memory.

        The cache opens the file when it is first used. The folder of the file must then exist.
        """
        self._path = path
        self._known: dict[bytes, float] = {}
        self._turn = Lock()

    @cached_property
    def _database(self) -> sqlite3.Connection | None:
        if self._path is None:
            return None
        try:
            self._path.touch(mode=0o600)  # Like all files of a run, only its owner may read it.
            database = open_database(self._path, isolation_level=None, check_same_thread=False, timeout=60)
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute(_SCHEMA)
        except sqlite3.Error as error:
            raise self._damaged(error) from None
        return database

    def known(self, keys: Sequence[bytes]) -> dict[bytes, float]:
        """Return the scores of these keys, as far as the cache has them. Raises `InputError` if the file is
        damaged, or is no score cache.
        """
        with self._turn:
            scores = {key: self._known[key] for key in keys if key in self._known}
            missing = [key for key in dict.fromkeys(keys) if key not in scores]
            if self._database is not None:
                for first in range(0, len(missing), _AT_ONCE):
                    some = missing[first : first + _AT_ONCE]
                    marks = ",".join("?" * len(some))
                    query = f"SELECT pair, score FROM scores WHERE pair IN ({marks})"
                    try:
                        rows = self._database.execute(query, some).fetchall()
                    except sqlite3.Error as error:
                        raise self._damaged(error) from None
                    scores |= {key: score for key, value in rows if (score := _read(key, value)) is not None}
            return scores

    def add(self, scores: Mapping[bytes, float]) -> None:
        """Store scores, each under the key of its pair."""
        with self._turn:
            self._known |= scores
            for key in list(self._known)[:-_KNOWN]:
                del self._known[key]
            if self._database is not None and scores:
                rows = [(key, _written(key, score)) for key, score in scores.items()]
                try:
                    with self._database:
                        self._database.execute("BEGIN")
                        self._database.executemany("INSERT OR REPLACE INTO scores VALUES (?, ?)", rows)
                except sqlite3.Error as error:
                    raise self._damaged(error) from None

    def _damaged(self, error: sqlite3.Error) -> InputError:
        return InputError(f"{self._path}: {fault(error)}; without this file the scores are computed again")


def _written(key: bytes, score: float) -> bytes:
    value = np.float32(score).tobytes()
    return value + blake2b(key + value, digest_size=_CHECK).digest()


def _read(key: object, value: object) -> float | None:
    if not isinstance(key, bytes) or not isinstance(value, bytes) or len(value) != 4 + _CHECK:
        return None
    score = float(np.frombuffer(value[:4], np.float32)[0])
    return score if value == _written(key, score) else None
