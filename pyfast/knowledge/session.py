"""A store as a run sees it: as it was when the run began; what the run learns joins it at the run's end."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from pyfast.engine import recorded_value
from pyfast.knowledge.build import update_knowledge
from pyfast.knowledge.extracts import BY_LLM
from pyfast.knowledge.ingest import add_extracts
from pyfast.knowledge.learned import Learned, encode_statements, learned_extracts
from pyfast.knowledge.rule_based import extract_by_rules
from pyfast.knowledge.snapshots import has_knowledge, open_knowledge, pin_snapshot
from pyfast.knowledge.store import Knowledge
from pyfast.ops.arrays import Int64
from pyfast.retrieval import Index
from pyfast.retrieval.embeddings import Embedder
from pyfast.retrieval.index import KNOWLEDGE

_log = logging.getLogger("pyfast")


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
        by_id, places = self._passages
        wanted = np.asarray(ids, np.uint64)
        at = np.minimum(np.searchsorted(by_id, wanted), len(by_id) - 1)
        found: Int64 = places[at[by_id[at] == wanted]]
        return found

    def passages(self, ids: Sequence[int]) -> list[int]:
        """The passages of the index that these segments are; those that are no longer there are left out."""
        found: list[int] = np.searchsorted(self.index.passages, self.segments(ids)).tolist()
        return found

    @cached_property
    def _passages(self) -> tuple[Any, Int64]:
        ids = self.index.corpus.ids[self.index.passages]
        order = np.argsort(ids)
        return ids[order], self.index.passages[order]

    def kept(self, run: Path) -> Session:
        """With the store in the run's folder: so it can be gone on with, whatever joins the index's."""
        return replace(self, store=pin_snapshot(self.store, run / KNOWLEDGE))

    def merge(self, answers: Path) -> None:
        """Add what the questions of a finished run learned, in their order; what was added before stays once."""
        assert self.store.embedder is not None
        if learned := list(learned_extracts(answers)):
            add_extracts(self.index, self.store.embedder, learned)

    def share_again(self, answers: Path) -> None:
        """Have in `shared` what the questions that are done have learned, in their order."""
        statements = [statement for extract in learned_extracts(answers) for statement in extract.statements]
        vectors = encode_statements(statements, self.store)
        for statement, vector in zip(statements, vectors, strict=True):
            self.shared.add(statement, vector)


def open_session(index: Index, model: str, run: Path | None = None) -> Session:
    """The store of an index for a run, as it was when the run began; an index without one gets one, by rules.

    `run` None: the run is to begin anew.

    Raises as `Embedder` and `open_knowledge` do.
    """
    embedder = Embedder(model)
    begun_with = None if run is None else recorded_value(run, "knowledge", "contents")
    if run is not None and begun_with is not None and (run / KNOWLEDGE).is_dir():
        kept = Knowledge.open(run / KNOWLEDGE, embedder)
        if kept.fingerprint == begun_with:
            return Session(index, kept)
    if not has_knowledge(index):
        _log.info(
            "the index holds no knowledge yet: extracting it by rules, then computing its vectors"
            " (`pyfast knowledge build --llm` asks an LLM instead)"
        )
        return Session(index, add_extracts(index, embedder, extract_by_rules(index)))
    store = open_knowledge(index, embedder, begun_with)
    if begun_with is None and store.manifest["corpus"] != index.manifest["corpus"]:
        store = _of_these_documents(index, embedder, store)
    return Session(index, store)


def _of_these_documents(index: Index, embedder: Embedder, store: Knowledge) -> Knowledge:
    """A store of documents that have changed: brought up to date, where that takes no LLM."""
    if (BY_LLM,) in store.rows("SELECT DISTINCT method FROM chunks"):
        _log.warning(
            "the index's documents are no longer those that its knowledge is from:"
            " `pyfast knowledge build --llm` extracts what is new"
        )
        return store
    _log.info("the index's documents are not in its knowledge yet: bringing it up to date")
    return update_knowledge(index, embedder, texts_by_rules=True)


def _installed(name: str) -> bool:
    try:
        version(name)
    except ModuleNotFoundError:  # importlib.metadata's error is one of these
        return False
    return True
