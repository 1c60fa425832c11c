"""The knowledge of one run: the graph as it was when the run started. Triples that the run learns are stored
only in the traces of its answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from pyfast.engine import recorded_value
from pyfast.engine.traces import records_of
from pyfast.knowledge.extracts import LEARNED, Extract, Statement
from pyfast.knowledge.rule_based import extract_by_rules
from pyfast.knowledge.snapshots import Writer, has_knowledge, make_apart, open_knowledge, pin_snapshot
from pyfast.knowledge.store import Knowledge
from pyfast.ops.arrays import Int32, Int64
from pyfast.retrieval import Index
from pyfast.retrieval.index.index import KNOWLEDGE
from pyfast.retrieval.vectors.embeddings import Embedder
from pyfast.utils.files import make_folder, only_writer
from pyfast.utils.log import LOG
from pyfast.utils.processes import scratch_folder
from pyfast.utils.text_forms import counted


def learned_extracts(answers: Path) -> Iterator[Extract]:
    """Read the triples that a run's questions learned, as one extract for each question with learned triples, in
    the order of the questions. `answers` is the run's file `answers.jsonl`."""
    for _, record in records_of(answers):
        if learned := record["trace"].get("learned"):
            statements = (
                Statement(one["head"], one["relation"], one["tail"], int(one["segment"], 16)) for one in learned
            )
            digest = blake2b(orjson.dumps((LEARNED, record["id"], learned)), digest_size=16).hexdigest()
            yield Extract(digest, LEARNED, tuple(statements))


@dataclass(frozen=True, eq=False)
class Session:
    """The knowledge graph that the questions of one run use."""

    index: Index
    store: Knowledge
    shared: dict[str, Any] = field(default_factory=dict)
    """What a system shares between all questions, by name"""
    scratch: ExitStack | None = None
    """What holds the folder of a store that was made only for this run, and deletes it when the session ends.
    None: the store belongs to an index or to a run's folder"""

    def within(self, index: Index) -> Session:
        """Return a session whose questions may use only the triples of the documents in `index`.

        The new session shares nothing with this session. If `index` is this session's index, the result is this
        session itself.
        """
        return self if index is self.index else replace(self, index=index, shared={})

    @cached_property
    def allowed(self) -> Int32 | None:
        """The numbers of the triples that a question may use, ascending: those of the documents that it may use.
        None: all triples."""
        if not self.index.is_restricted:
            return None
        ids = self.index.corpus.ids[self.index.passages]
        return self.store.stated_in(ids.tolist())

    def usable(self, triples: Int32) -> Int32:
        """Return those of these triples that a question may use, in their order."""
        return triples if self.allowed is None else triples[np.isin(triples, self.allowed)]

    def around(self, entity: int) -> Int32:
        """Return the triples of an entity that a question may use."""
        offsets, incident = self.store.incident
        return self.usable(incident[offsets[entity] : offsets[entity + 1]])

    def knows(self, head: str, relation: str, tail: str) -> bool:
        """Return whether the store has this triple and a question may use it."""
        known = self.store.find_triples(head, relation, tail)
        return bool(known) if self.allowed is None else not set(known).isdisjoint(self.allowed.tolist())

    def describe(self) -> dict[str, Any]:
        """Return the run.toml entries that identify the knowledge graph: its checksum, and the versions of the
        libraries that search it."""
        used = {}
        for name in ("faiss-cpu", "sentence-transformers", "torch"):
            with suppress(ModuleNotFoundError):  # This includes importlib.metadata's error.
                used[name] = version(name)
        return {"contents": self.store.fingerprint, "libraries": orjson.dumps(used).decode()}

    def numbers(self, ids: npt.ArrayLike) -> Int64:
        """Return the numbers of the passages with these ids in the index, or -1 for a passage that is not there,
        for example because its document was deleted."""
        by_id, numbers = self._passages
        wanted = np.asarray(ids, np.uint64)
        at = np.minimum(np.searchsorted(by_id, wanted), len(by_id) - 1)
        return np.where(by_id[at] == wanted, numbers[at], -1)

    def passages(self, ids: Sequence[int]) -> list[int]:
        """Return the numbers in the index of the passages with these ids. An id is left out if the index has
        no such passage."""
        numbers = self.numbers(ids)
        return numbers[numbers >= 0].tolist()

    @cached_property
    def _passages(self) -> tuple[Any, Int64]:
        ids = self.index.corpus.ids[self.index.passages]
        order = np.argsort(ids)
        return ids[order], order

    def kept(self, run: Path) -> Session:
        """Return a session that uses hard links to the store's files in the run's folder, so that the run can
        resume even if the index changes."""
        return replace(self, store=pin_snapshot(self.store, run / KNOWLEDGE))


def open_session(index: Index, model: str, run: Path | None = None) -> Session:
    """Open the knowledge graph of an index for a run. A resumed run gets the graph as it was when the run
    started. The index does not change.

    Args:
        index: The index. If the index has no knowledge graph, pyfast extracts a graph by rules for this run alone.
        model: The embedding model: its name or folder.
        run: The folder of a run that may have started before. None: the run is new.

    Returns:
        The session.

    Raises:
        IndexFormatError: The snapshot is damaged.
        ModelNotFoundError: There is no such embedding model.
    """
    embedder = Embedder(model, index.hardware)
    begun_with = None if run is None else recorded_value(run, "knowledge", "contents")
    if run is not None and begun_with is not None and (run / KNOWLEDGE).is_dir():
        kept = Knowledge.open(run / KNOWLEDGE, embedder)
        if kept.fingerprint == begun_with:
            return Session(index, kept)
    build = f"`pyfast knowledge build {index.folder}`"
    if has_knowledge(index):
        store = open_knowledge(index, embedder)
        if store.manifest["corpus"] != index.manifest["corpus"]:
            LOG.warning(
                "the index has changed since its knowledge graph was built; %s adds the new documents", build
            )
        return Session(index, store)
    LOG.warning(
        "the index has no knowledge graph, so rules build one for this run only; %s builds a permanent one", build
    )
    scratch, began = ExitStack(), monotonic()
    folder = scratch.enter_context(scratch_folder()) / KNOWLEDGE
    if run is not None:
        make_folder(run)
    with nullcontext() if run is None else only_writer(run, lambda: None):  # `pyfast status` looks at this lock.
        store = make_apart(folder, index, embedder, lambda database: Writer(database).add(extract_by_rules(index)))
    LOG.info("the graph of this run: %s, built in %.0f s", counted(len(store), "triple"), monotonic() - began)
    return Session(index, store, scratch=scratch)
