"""Find the passages of the ids in a trace, in the run's index and in the record's evidence. A page loads a part of
a passage's document when the user asks for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyfast.corpus import Corpus, Level
from pyfast.engine import Record
from pyfast.engine.configuration import recorded_path, recorded_value
from pyfast.errors import InputError, PyfastError
from pyfast.evaluation.gold import Gold
from pyfast.retrieval import Index
from pyfast.retrieval.index.manifest import commit_numbers
from pyfast.retrieval.rerank import segment_ids
from pyfast.systems.n2n_graphs import SharedTerms
from pyfast.systems.traces import SEGMENT
from pyfast.utils.log import LOG

TEXT = 20_000
"""The number of characters in a part of a text"""
AROUND = 2_000
"""The number of characters that are shown before and after a part of a text"""
ROWS = 50
TRIPLES = 128
"""The number of triples in a part of a knowledge graph. A page shows the part and up to `_MOST` more triples,
because a segment can continue beyond the end of its part
"""
_MOST = 64


class Part(NamedTuple):
    """A part of a document: the text, rows or triples around a passage."""

    source: int
    number: int

    @property
    def key(self) -> str:
        """The name of this part of a document in the data of a page."""
        return f"{self.source}-{self.number}"


def part_of(corpus: Corpus, segment: int) -> tuple[Part, list[int]]:
    """Find the part of a document that contains a segment. Returns the part, and the range (first, after the
    last) of the segment's characters, rows or triples.
    """
    source = int(corpus.source[segment])
    start, end = int(corpus.start[segment]), int(corpus.end[segment])
    size = TEXT
    if corpus.is_graph(segment):
        size, root = TRIPLES, int(corpus.roots[source])
        start = int(np.count_nonzero(corpus.level[root:segment] == Level.TRIPLET))
        end = start + len(corpus.triples(segment))
    elif corpus.is_table(segment):
        size, start = ROWS, max(start, 0)
        end = start + (corpus.level[segment] != Level.TABLE)
    return Part(source, start // size), [start, int(end)]


def content_of(corpus: Corpus, part: Part) -> dict[str, Any]:
    """Return the content of a part of a document, in JSON types.

    `from` is the number of the first character, row or triple in the result, from 0. `of` is the number of
    characters, rows or triples of the whole document.
    """
    source, number = part
    root = int(corpus.roots[source])
    shown = {"uri": corpus.uri(source), "title": corpus.title(source)}
    if corpus.is_graph(root):
        first, at = number * TRIPLES, _below(corpus, root, Level.TRIPLET)
        facts = [corpus.triples(i)[0] for i in at[first : first + TRIPLES + _MOST].tolist()]
        return {**shown, "from": first, "of": len(at), "triples": [(x.head, x.relation, x.tail) for x in facts]}
    if corpus.is_table(root):
        first, at = number * ROWS, _below(corpus, root, Level.TABLE_ROW)
        rows = [corpus.content(i).split("\t") for i in at[first : first + ROWS].tolist()]
        return {**shown, "from": first, "of": len(at), "header": corpus.header(source), "rows": rows}
    text = corpus.content(root)
    first = max(number * TEXT - AROUND, 0)
    return {**shown, "from": first, "of": len(text), "text": text[first : (number + 1) * TEXT + AROUND]}


def _below(corpus: Corpus, root: int, level: Level) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the segments of one level in a document, in the order of the document. `root` is the document's
    own segment.
    """
    return root + np.flatnonzero(corpus.level[root : int(corpus.subtree_end[root])] == level)


EXCERPT = 160
"""The maximum number of characters shown of a passage that no step kept"""
HELD = 1 << 15
"""The maximum number of passages in the cache. Many questions show the same passages"""
Passage = dict[str, Any]
"""A passage in JSON types: `uri`, `text`, `title` (if the title is not the uri) and `cut` (if `text` is only
the beginning of the passage).

A table row also has `header`, the names of its columns; `text` has a tab between two cells.
"""


def index_of(run: Path) -> Index | None:
    """Open the index that a run searched, with the run's filter, if it still exists.

    The index is opened at the commit that the run used or, if that no longer exists, at the current one. If its
    documents are not those of the run, the function logs a warning. If the index is missing or cannot be opened,
    it logs a warning and returns None.
    """
    if not recorded_value(run, "places", "index"):
        return None
    try:
        place = recorded_path(run, "index")
        commit, corpus = (recorded_value(run, "index", name) for name in ("commit", "corpus"))
        known = commit if commit in commit_numbers(place) else None
        index = Index(place, commit=known, filter=recorded_value(run, "index", "filter") or ())
        if corpus != index.manifest["corpus"]:
            LOG.warning("%s has changed; passages that are not evidence are shown with their current text", place)
        return index
    except (PyfastError, OSError) as error:
        LOG.warning("%s; of passages that are not evidence, only the ids are shown", error)
        return None


@dataclass(frozen=True, slots=True)
class FoundDocument:
    """A document of the index."""

    first: Part
    """The first part of the document"""
    is_table: bool
    shown: Mapping[str, str]
    """In JSON types: the document's `title`, and `part`, the key of its first part. If the document has only one
    passage, `passage` is its id"""


class PassageFinder:
    """Finds segments by their ids. It keeps the sorted ids of all segments of the index."""

    def __init__(self, index: Index | None) -> None:
        self.index = index
        """The index, if there is one"""
        if index is not None:
            ids = index.corpus.ids[:]
            self._order = np.argsort(ids)
            self._sorted = ids[self._order]
        self._documents: dict[str, FoundDocument] = {}
        self.shared_terms = SharedTerms()
        """The shared terms of the index's passages"""
        self.part = lru_cache(HELD)(self._part)
        """A function that takes a segment and returns the part of its document, and in JSON types the key of this
        part (`part`) and the range of the segment in the document (`span`)"""
        self._passage = lru_cache(HELD)(self._read)

    def within(self, uris: Sequence[str]) -> PassageFinder:
        """Return a finder for only the documents with these uris, or this finder without uris. If the index
        lacks one of the documents, the finder has no index."""
        if self.index is None or not uris:
            return self
        try:
            return PassageFinder(self.index.within(uris))
        except InputError as error:  # The run's commit of the index is gone.
            LOG.warning("%s; the evidence graphs of the run's questions are not shown", error)
            return PassageFinder(None)

    def find(
        self, ids: Iterable[str], whole: Iterable[str], segments: Mapping[str, int], record: Record
    ) -> dict[str, Passage]:
        """Find the passages with these ids, and the passages of the evidence. `segments` maps ids to the segments'
        positions in the corpus. Other ids are left out.

        Passages in `whole` have their complete text. Of other texts, only the beginning is shown. Passages that
        are not evidence are cached, because several questions can show them.
        """
        shown = _of_evidence(record)
        all_text = set(whole)
        for id in ids:
            if id not in shown and id in segments:
                complete, beginning = self._passage(segments[id])
                shown[id] = complete if id in all_text else beginning
        for one in record.evidence:
            if one.segment in segments and "title" not in shown[one.segment]:
                titled, _ = self._passage(segments[one.segment])
                shown[one.segment] |= {"title": titled["title"]} if "title" in titled else {}
        return shown

    def look_for(self, golds: Iterable[Gold]) -> None:
        """Find the documents of all these gold answers in one pass over the index. After this call, `document` can
        return them."""
        uris = dict.fromkeys(uri for gold in golds for uri in gold.supporting or ())
        wanted = [uri for uri in uris if uri not in self._documents]
        if self.index is None or not wanted:
            return
        corpus, passages = self.index.corpus, np.asarray(self.index.passages)
        known = corpus.document_table.column("uri")
        places = pc.fill_null(pc.index_in(known, value_set=pa.array(wanted, known.type)), -1).to_numpy()
        sources = np.flatnonzero(places >= 0)[::-1]  # If documents have the same uri, the first one counts.
        roots = corpus.roots[sources]
        first, end = np.searchsorted(passages, np.stack([roots, corpus.subtree_end[roots]]))
        only = end - first == 1
        ids = iter(segment_ids(self.index, passages[first[only]]))
        for source, root, single in zip(sources.tolist(), roots.tolist(), only.tolist(), strict=True):
            part = Part(source, 0)
            shown = {"title": corpus.title(source), "part": part.key} | ({"passage": next(ids)} if single else {})
            self._documents[wanted[places[source]]] = FoundDocument(part, corpus.is_table(root), shown)

    def document(self, uri: str) -> FoundDocument | None:
        """Return a document that `look_for` has found. None if the index does not have the document."""
        return self._documents.get(uri)

    def segments(self, ids: Iterable[str]) -> dict[str, int]:
        """Return the positions of segments in the corpus, by their ids. Unknown ids are left out."""
        numbers = {id: int(id, 16) for id in ids if SEGMENT.fullmatch(id)}
        if self.index is None or not numbers or not len(self._sorted):
            return {}
        values = np.array(list(numbers.values()), np.uint64)
        at = np.minimum(np.searchsorted(self._sorted, values), len(self._sorted) - 1)
        there = self._sorted[at] == values
        places = self._order[at].tolist()
        return {id: place for id, place, known in zip(numbers, places, there.tolist(), strict=True) if known}

    def content(self, part: Part) -> dict[str, Any]:
        """Return the content of a part of a document, as `content_of` does."""
        assert self.index is not None
        return content_of(self.index.corpus, part)

    def _part(self, segment: int) -> tuple[Part, dict[str, Any]]:
        assert self.index is not None
        part, span = part_of(self.index.corpus, segment)
        return part, {"span": span, "part": part.key}

    def _read(self, segment: int) -> tuple[Passage, Passage]:
        """Return the passage with its complete text, and the passage with the beginning of its text."""
        assert self.index is not None
        corpus = self.index.corpus
        source = int(corpus.source[segment])
        text = corpus.content(segment)
        header = corpus.header(source) if "\t" in text and corpus.level[segment] == Level.TABLE_ROW else ()
        complete = _passage(corpus.uri(source), corpus.heading(source), text, header)
        if header or len(text) <= EXCERPT:
            return complete, complete
        return complete, {**complete, "text": text[:EXCERPT], "cut": True}


def _of_evidence(record: Record) -> dict[str, Passage]:
    """Return the passages of the evidence of a record, by segment id."""
    passages = {}
    for one in record.evidence:
        if one.segment:
            in_row = "\t" in one.snippet and one.offsets[0] >= 0 > one.offsets[1]
            header = (one.metadata.get("header") or ()) if in_row else ()
            passages[one.segment] = _passage(one.uri, one.heading, one.snippet, tuple(map(str, header)))
    return passages


def _passage(uri: str, title: str, text: str, header: Sequence[str]) -> Passage:
    passage: Passage = {"uri": uri, "text": text}
    if title and title != uri:
        passage["title"] = title
    if header:
        passage["header"] = header
    return passage
