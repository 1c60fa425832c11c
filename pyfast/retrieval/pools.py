"""Pools, and how to make one list from several. A pool is the list of passages that a search found for a query.

This module also contains the interfaces of retrievers and rerankers, and opens them by name: `NAME` or
`NAME:PARAMETERS` for a registered plug-in, and `MODULE:NAME` for any other.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import chain, pairwise
from pathlib import Path
from threading import Lock
from typing import Any, Literal, Protocol

import numpy as np

import pyfast.ops as ops
import pyfast.utils.plugins as plugins
from pyfast.errors import InputError
from pyfast.ops.arrays import Float32, Int32, Int64, ends
from pyfast.utils.sqlite_files import fault, open_database

_Searching = Literal["retrievers", "rerankers"]
RANK_CONSTANT = 10
"""Reciprocal rank fusion scores a passage by 1 / (this number + its rank) in each list. Ranks start at 1"""


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """The passages retrieved for one query, best first."""

    passages: Int32
    """[n] the passages, by their row numbers in the forward index"""
    scores: Float32
    """[n] the score of each passage: from the retriever, or from a later fusion or ranking"""

    def __len__(self) -> int:
        return len(self.passages)

    def __iter__(self) -> Iterator[tuple[int, float]]:
        """(passage, score) pairs."""
        return zip(self.passages.tolist(), self.scores.tolist(), strict=True)

    def head(self, n: int) -> Pool:
        """The first `n` passages of the pool."""
        return Pool(self.passages[:n], self.scores[:n])


_NOTHING = Pool(np.empty(0, np.int32), np.empty(0, np.float32))


def stack_pools(pools: Sequence[Pool]) -> tuple[Int64, Int32, Float32]:
    """Join P pools into the arrays that native ops take: (offsets [P + 1], passages, scores)."""
    return (
        ends(pools),
        np.concatenate([_NOTHING.passages, *[pool.passages for pool in pools]]),
        np.concatenate([_NOTHING.scores, *[pool.scores for pool in pools]]),
    )


def split(offsets: Int64, passages: Int32, scores: Float32) -> list[Pool]:
    """Make pools from the arrays that an op returned, without copying them."""
    return [Pool(passages[begin:end], scores[begin:end]) for begin, end in pairwise(offsets.tolist())]


def fuse(groups: Sequence[Sequence[Pool]], k: int) -> list[Pool]:
    """Join the pools of each group into one list of the `k` best passages, without duplicates, in one native call.

    Scores of different queries are not comparable, so the scores of each pool are min-max normalised; if all are
    equal, they become 1. A passage that is in several pools keeps its best score. Among passages with equal
    scores, those of an earlier pool come first, and those of the same pool keep their order.

    Args:
        groups: The groups of pools. Each group becomes one list.
        k: The maximum number of passages in a list.

    Returns:
        One pool for each group, best first.

    Example:
        >>> from pathlib import Path
        >>> from pyfast.retrieval import Index, fuse
        >>> index = Index(Path("IDX"))
        >>> len(fuse([index.search(["Saturn", "Titan"], 5)], 4)[0])
        4
    """
    return split(*ops.fuse(ends(groups), *stack_pools(list(chain.from_iterable(groups))), k))


def reciprocal_ranks(lists: Sequence[Int32]) -> Pool:
    """Rank the passages of several lists by the sum of their reciprocal ranks.

    Args:
        lists: Lists of passages, best first, without duplicates. A list adds nothing to the sums of passages
            that are not in the list.

    Returns:
        Every passage once, best first. If sums are equal, passages of earlier lists come first.
    """
    return _summed([(passages, 1 / (RANK_CONSTANT + 1 + np.arange(len(passages)))) for passages in lists])


def weighted_scores(pools: Sequence[Pool], weights: Sequence[float]) -> Pool:
    """Rank the passages of several pools by the weighted sum of their scores. The scores of each pool are first
    min-max normalised.

    After that, the highest score of a pool is 1 and the lowest is 0. If all scores of a pool are equal, all
    of them are 1. A pool adds 0 for a passage that it does not have.
    """
    scored = []
    for pool, weight in zip(pools, weights, strict=True):
        scores = pool.scores.astype(np.float64)
        spread = np.ptp(scores) if len(scores) else 0.0
        scored.append((pool.passages, weight * ((scores - scores.min()) / spread if spread else scores * 0 + 1)))
    return _summed(scored)


def _summed(scored: Sequence[tuple[Int32, np.ndarray[tuple[int], np.dtype[np.float64]]]]) -> Pool:
    passages = np.concatenate([np.empty(0, np.int32), *(each for each, _ in scored)])
    distinct, first, place = np.unique(passages, return_index=True, return_inverse=True)
    sums = np.zeros(len(distinct))
    np.add.at(sums, place, np.concatenate([np.empty(0), *(values for _, values in scored)]))
    order = np.lexsort((first, -sums))
    scores: Float32 = sums[order].astype(np.float32)
    return Pool(distinct[order].astype(np.int32), scores)


OFF, BOTH = "off", "both"


class Retriever(Protocol):
    """The interface of a retriever. It finds passages for many queries in one call.

    An entry point of the group `pyfast.retrievers`, or `MODULE:NAME`, names a function `open(index)` that
    returns a retriever. If the user writes `ENTRY_POINT:PARAMETERS`, pyfast calls `open(index, PARAMETERS)`.
    The result of a query must not depend on the other queries of the call.
    """

    @property
    def fingerprint(self) -> str:
        """A text that identifies the retriever and its parameters. A run resumes only with the same
        fingerprint.
        """

    def search(self, queries: Sequence[str], k: int) -> list[Pool]:
        """Find at most the `k` best passages of the index for each query, best first.

        Several threads can call this method at the same time.
        """


class Reranker(Protocol):
    """The interface of a reranker. It scores the passages of many queries in one call.

    An entry point of the group `pyfast.rerankers`, or `MODULE:NAME`, names a function `open(index)` that
    returns a reranker. If the user writes `ENTRY_POINT:PARAMETERS`, pyfast calls `open(index, PARAMETERS)`.
    The score of a passage must not depend on the other passages, because pyfast caches scores.
    """

    @property
    def fingerprint(self) -> str:
        """A text that identifies the reranker and its parameters. A run resumes only with the same fingerprint."""

    def score(self, queries: Sequence[str], passages: Sequence[Int32]) -> list[Float32]:
        """For each query, compute the scores of its passages. Higher is better.

        Several threads can call this method at the same time.
        """


def open_retriever(name: str, index: object) -> Retriever:
    """Open a retriever for an index, by its name or `MODULE:NAME`. Raises `InputError` if there is no such
    retriever, or it does not have the interface `Retriever`.
    """
    return _opened("retrievers", name, index, "search", name)


def open_rerankers(name: str, index: object) -> tuple[Reranker, ...]:
    """Open the rerankers that `name` stands for. `off` stands for none, and `both` for `late` and `cross`.
    Every other name stands for one reranker, such as `cross:MODEL` or `MODULE:NAME`.

    Raises `InputError` if there is no such reranker, or it does not have the interface `Reranker`.
    """
    return tuple(_opened("rerankers", each, index, "score", name) for each in _rerankers(name))


def check_named(retriever: str, rerank: str) -> None:
    """Raise `InputError` if there is no retriever or reranker with these names, before there is an index."""
    named: tuple[tuple[_Searching, Sequence[str]], ...]
    named = ("retrievers", [retriever]), ("rerankers", _rerankers(rerank))
    for kind, names in named:
        for name in names:
            if name.partition(":")[0] not in plugins.names(kind):
                plugins.load(kind, name)


def _rerankers(name: str) -> Sequence[str]:
    return () if name == OFF else ("late", "cross") if name == BOTH else (name,)


def _opened(kind: _Searching, name: str, index: object, method: str, given: str) -> Any:
    """Open a plug-in for an index. For example, `cross:MODEL` opens `cross` with `MODEL` as its second argument.

    Raises `InputError` if there is no such plug-in, its module cannot be imported, or it lacks `method`. Such an
    error names it as the user did (`given`).
    """
    registered, colon, rest = name.partition(":")
    with_parameters = colon and registered in plugins.names(kind)
    opened = plugins.load(kind, registered)(index, rest) if with_parameters else plugins.load(kind, name)(index)
    if not hasattr(opened, method) or not hasattr(opened, "fingerprint"):
        what = kind.removesuffix("s")
        raise InputError(
            f"{given} is not a {what}: it has no `{method}` or no `fingerprint` (see {what.capitalize()})"
        )
    return opened


RERANK_SCORES = "rerank_scores.sqlite"
"""The name of the file with the scores of a run, in the folder of the run"""
_KNOWN = 200_000  # the number of scores in memory
_KEYS = 500  # keys in one SQL statement
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
        self._path.touch(mode=0o600)  # Like all files of a run, only its owner may read it.
        database = open_database(self._path, isolation_level=None, check_same_thread=False, timeout=60)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute(_SCHEMA)
        return database

    def known(self, keys: Sequence[bytes]) -> dict[bytes, float]:
        """Return the scores of these keys, as far as the cache has them. Raises `InputError` if the file is
        damaged, or is no score cache.
        """
        with self._turn, self._explained():
            scores = {key: self._known[key] for key in keys if key in self._known}
            missing = [key for key in dict.fromkeys(keys) if key not in scores]
            if self._database is not None:
                for first in range(0, len(missing), _KEYS):
                    some = missing[first : first + _KEYS]
                    marks = ",".join("?" * len(some))
                    query = f"SELECT pair, score FROM scores WHERE pair IN ({marks})"
                    rows = self._database.execute(query, some).fetchall()
                    scores |= {key: score for key, value in rows if (score := _read(key, value)) is not None}
            return scores

    def add(self, scores: Mapping[bytes, float]) -> None:
        """Store scores, each under the key of its pair."""
        with self._turn, self._explained():
            self._known |= scores
            for key in list(self._known)[:-_KNOWN]:
                del self._known[key]
            if self._database is not None and scores:
                rows = [(key, _written(key, score)) for key, score in scores.items()]
                with self._database:
                    self._database.execute("BEGIN")
                    self._database.executemany("INSERT OR REPLACE INTO scores VALUES (?, ?)", rows)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            why = f"{fault(error)}; if you remove this file, the scores are computed again"
            raise InputError(f"{self._path}: {why}") from None


def _written(key: bytes, score: float) -> bytes:
    value = np.float32(score).tobytes()
    return value + blake2b(key + value, digest_size=_CHECK).digest()


def _read(key: object, value: object) -> float | None:
    if not isinstance(key, bytes) or not isinstance(value, bytes) or len(value) != 4 + _CHECK:
        return None
    score = float(np.frombuffer(value[:4], np.float32)[0])
    return score if value == _written(key, score) else None
