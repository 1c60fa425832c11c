"""A commit: one version of the documents of an index. Other commits can be made from it, which have only the
documents that a filter or a question chooses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pyfast.errors import IndexFormatError, InputError
from pyfast.retrieval.analysis import Analysis
from pyfast.retrieval.filters import Condition, fitting_documents, with_fitting_triples
from pyfast.retrieval.making import make_part
from pyfast.retrieval.manifest import live_documents, map_part, read_manifest
from pyfast.retrieval.merging import merged
from pyfast.retrieval.part_files import Mask
from pyfast.retrieval.parts import Part, open_part
from pyfast.retrieval.passage_vectors import vectors_of
from pyfast.retrieval.uris import find_documents


@dataclass(frozen=True, slots=True, eq=False)
class Commit:
    """The parts of an opened commit, or of the documents that were chosen from it."""

    manifest: dict[str, Any]
    parts: list[Part]
    live: list[Mask]
    """For each part, which of its documents are not deleted: bool[documents]"""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The parameters of the index: how its parts are made."""
        parameters: Mapping[str, Any] = self.manifest["parameters"]
        return parameters

    @property
    def is_one(self) -> bool:
        """Whether the commit is one part without deleted documents."""
        return len(self.parts) == 1 and bool(self.live[0].all())

    def kept_passages(self) -> list[Mask]:
        """Return for each part, which of its passages are not deleted: bool[passages]."""
        return [part.live_passages(alive) for part, alive in zip(self.parts, self.live, strict=True)]

    def whole(self) -> Part:
        """Return all documents that are not deleted, as one part. Several parts are merged (see `merged`)."""
        return self.parts[0] if self.is_one else merged(self.parts, self.live)

    def fitting(self, conditions: Sequence[Condition]) -> Commit:
        """Return a commit that has only the documents that meet all conditions.

        If a condition is about `time`, the result has a new part after each part. The new part has the documents
        that the mask of the old part would choose, and the mask of the old part chooses none. In the new part, a
        knowledge graph has only the triples that meet all conditions on `time`.
        """
        parts: list[Part] = []
        masks: list[Mask] = []
        is_timed = any(condition.key == "time" for condition in conditions)
        for part, alive in zip(self.parts, self.live, strict=True):
            mask = fitting_documents(part.corpus, conditions, alive)
            parts.append(part)
            masks.append(mask)
            if is_timed:
                graphs = np.flatnonzero(mask)  # A document without a time is not selected.
                documents = map(part.corpus.document, graphs.tolist())
                cut = [with_fitting_triples(document, conditions) for document in documents]
                mask[graphs] = False
                made = make_part(cut, self.parameters)
                parts.append(replace(made, vectors=vectors_of(made.rendered, self.parameters)))
                masks.append(np.ones(made.corpus.documents, bool))
        return Commit(self.manifest, parts, masks)

    def of_documents(self, whole: Part, uris: Sequence[str]) -> Commit:
        """Make a commit from some documents of this one. The result equals a part made from only these documents.
        `whole` is what the method `whole` returned.

        Raises `InputError` if one of the uris belongs to no document, or these documents have no passages.
        """
        wanted = list(dict.fromkeys(uris))
        found = find_documents(whole.corpus, whole.files, wanted)
        if len(found) < len(wanted):
            missing = next(uri for uri in wanted if uri not in found)
            raise InputError(f"documents: {missing!r} is not in the index")
        sources = sorted(found.values())
        part = make_part(map(whole.corpus.document, sources), self.parameters)
        if not part.counts.total_length:
            raise InputError("documents: they have no passages")
        if whole.vectors:
            ends = np.append(whole.corpus.roots, len(whole.corpus))
            passages = np.asarray(whole.passages)
            rows = np.concatenate(
                [np.arange(*np.searchsorted(passages, ends[source : source + 2])) for source in sources]
            )
            part = replace(part, vectors={kind: matrix[rows] for kind, matrix in whole.vectors.items()})
        return Commit(self.manifest, [part], [np.ones(part.corpus.documents, bool)])


def open_commit(folder: Path, number: int | None) -> Commit:
    """Open a commit of an index. None: the current commit.

    If files vanish while they are opened, another process has erased earlier commits. The function then opens
    the new current commit.
    """
    while True:
        manifest = read_manifest(folder, commit=number, check=False)
        try:
            manifest = read_manifest(folder, commit=number)
            entries, analysis = manifest["parts"], Analysis.of(manifest["parameters"])
            parts = [open_part(map_part(folder, manifest, entry["name"]), analysis) for entry in entries]
            if any(
                part.corpus.documents != entry["documents"] for part, entry in zip(parts, entries, strict=True)
            ):
                raise IndexFormatError(f"{folder}: a part is of other documents; build the index again")
            return Commit(manifest, parts, [live_documents(folder, entry) for entry in entries])
        except (IndexFormatError, FileNotFoundError):
            if number is not None or read_manifest(folder, check=False) == manifest:
                raise
