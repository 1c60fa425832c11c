"""A store as a run sees it: as it was when the run began; what the run learns joins it at the run's end."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from pyfast.engine import known_of
from pyfast.jsonl import read_lines
from pyfast.knowledge.extraction import METHOD as READ
from pyfast.knowledge.extraction import take_over
from pyfast.knowledge.facts import wording
from pyfast.knowledge.records import Extract, Statement, Writer, key_of
from pyfast.knowledge.snapshots import change, has_knowledge, keep, open_knowledge
from pyfast.knowledge.store import Knowledge
from pyfast.knowledge.straight import read_straight
from pyfast.ops.arrays import Float32, Int64
from pyfast.retrieval import Index
from pyfast.retrieval.embeddings import Embedder
from pyfast.retrieval.index import KNOWLEDGE

METHOD = "learned"


@dataclass(slots=True, eq=False)
class Learned:
    """Statements that are not in the store, in the order in which they were learned."""

    statements: list[Statement] = field(default_factory=list)
    vectors: list[Float32] = field(default_factory=list)
    """[dimensions] of each statement's `wording_of`"""
    keys: set[tuple[str, str, str]] = field(default_factory=set)

    def add(self, statement: Statement, vector: Float32) -> bool:
        """Whether it is new."""
        keys = (key_of(statement.head), key_of(statement.relation), key_of(statement.tail))
        if keys in self.keys:
            return False
        self.keys.add(keys)
        self.statements.append(statement)
        self.vectors.append(vector)
        return True

    def cosines(self, query: Float32) -> list[float]:
        """Of each statement to a query's vector."""
        return [float(np.dot(vector, query)) for vector in self.vectors]


def wording_of(statement: Statement) -> str:
    """What a learned statement's vector is made from: as that of a fact."""
    return wording(statement.head, statement.relation, [statement.tail], backward=False)


@dataclass(frozen=True, eq=False)
class Session:
    """What the questions of one run share."""

    index: Index
    store: Knowledge
    shared: Learned = field(default_factory=Learned)
    """Of all questions, for runs that share at once"""

    def describe(self) -> dict[str, Any]:
        """What answers depend on, for run.toml."""
        used = {
            name: version(name) for name in ("faiss-cpu", "sentence-transformers", "torch") if _installed(name)
        }
        return {"contents": self.store.fingerprint, "libraries": orjson.dumps(used).decode()}

    def segments(self, ids: Sequence[int]) -> Int64:
        """The places of these segments in the corpus; those that are no longer there are left out."""
        by_id, places = self._units
        wanted = np.asarray(ids, np.uint64)
        at = np.minimum(np.searchsorted(by_id, wanted), len(by_id) - 1)
        found: Int64 = places[at[by_id[at] == wanted]]
        return found

    def units(self, ids: Sequence[int]) -> list[int]:
        """The units of the index that these segments are; those that are no longer there are left out."""
        found: list[int] = np.searchsorted(self.index.units, self.segments(ids)).tolist()
        return found

    @cached_property
    def _units(self) -> tuple[Any, Int64]:
        ids = self.index.corpus.ids[self.index.units]
        order = np.argsort(ids)
        return ids[order], self.index.units[order]

    def kept(self, run: Path) -> Session:
        """With the store in the run's folder: so it can be gone on with, whatever joins the index's."""
        return replace(self, store=keep(self.store, run / KNOWLEDGE))

    def merge(self, answers: Path) -> None:
        """Add what the questions of a finished run learned, in their order; what was added before stays once."""
        assert self.store.embedder is not None
        learned = list(_learned(answers))
        if learned:
            change(self.index, self.store.embedder, lambda database: Writer(database).add(learned))

    def share_again(self, answers: Path) -> None:
        """Have in `shared` what the questions that are done have learned, in their order."""
        said = [statement for extract in _learned(answers) for statement in extract.statements]
        for statement, vector in zip(said, self.store.encode(list(map(wording_of, said))), strict=True):
            self.shared.add(statement, vector)


def _learned(answers: Path) -> Iterator[Extract]:
    for _, record in read_lines(answers):
        if found := record["trace"].get("learned"):
            said = (Statement(one["head"], one["relation"], one["tail"], int(one["segment"], 16)) for one in found)
            digest = blake2b(orjson.dumps((METHOD, record["id"], found)), digest_size=16).hexdigest()
            yield Extract(digest, METHOD, tuple(said))


def open_session(index: Index, model: str, run: Path | None = None) -> Session:
    """The store of an index for a run, as it was when the run began; an index without one gets one, read straight.

    `run` None: the run is to begin anew.

    Raises as `Embedder` and `open_knowledge` do.
    """
    embedder = Embedder(model)
    begun_with = None if run is None else known_of(run, "knowledge", "contents")
    if run is not None and begun_with is not None and (run / KNOWLEDGE).is_dir():
        kept = Knowledge.open(run / KNOWLEDGE, embedder)
        if kept.fingerprint == begun_with:
            return Session(index, kept)
    if not has_knowledge(index):
        print(
            "the index holds no knowledge yet: reading it without a language model, then computing its vectors"
            " (`pyfast knowledge build` asks a language model instead)",
            file=sys.stderr,
        )
        extracts = read_straight(index)
        return Session(index, change(index, embedder, lambda database: Writer(database).add(extracts)))
    store = open_knowledge(index, embedder, begun_with)
    if begun_with is None and store.manifest["corpus"] != index.manifest["corpus"]:
        store = _of_these_documents(index, embedder, store)
    return Session(index, store)


def _of_these_documents(index: Index, embedder: Embedder, store: Knowledge) -> Knowledge:
    """A store of documents that have changed: brought up to date, where that takes no language model."""
    if (READ,) in store.rows("SELECT DISTINCT method FROM chunks"):
        print(
            "the index's documents are no longer those that its knowledge was read from:"
            " `pyfast knowledge build --llm` reads what is new",
            file=sys.stderr,
        )
        return store
    print("the index's documents were not read yet: bringing its knowledge up to date", file=sys.stderr)
    return take_over(index, embedder, texts=True)


def _installed(name: str) -> bool:
    try:
        version(name)
    except ModuleNotFoundError:  # importlib.metadata's error is one of these
        return False
    return True
