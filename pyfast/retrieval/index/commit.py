"""A commit: one version of an index's documents. Other commits can be made from it that contain only the documents
chosen by a question or by a filter. A filter chooses documents by source, level, time or metadata.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import translate
from functools import lru_cache
from operator import ge, gt, le, lt
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from pyfast.corpus import Corpus, Document, KnowledgeGraph
from pyfast.corpus.schema import PASSAGE_LEVELS
from pyfast.errors import IndexFormatError, InputError
from pyfast.retrieval.index.manifest import live_documents, map_part, read_manifest
from pyfast.retrieval.index.part_maker import make_part
from pyfast.retrieval.index.parts import Part, merged, open_part
from pyfast.retrieval.part_files import Mask, find_documents
from pyfast.retrieval.terms import Analysis
from pyfast.retrieval.vectors.passage_vectors import vectors_of
from pyfast.utils.log import LOG
from pyfast.utils.text_forms import compared, some

_CONDITION = re.compile(r"(source|title|level|time|meta\.[^=!<>]+?)\s*(!=|<=|>=|=|<|>)(.*)", re.DOTALL)
_LEVELS = tuple(level.name.lower() for level in PASSAGE_LEVELS)
_ORDER: dict[str, Callable[[Any, Any], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition on a document, such as `source=reports/*` or `meta.year>=2020`."""

    key: str
    operator: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.key}{self.operator}{'|'.join(self.values)}"

    def fits(self, values: Sequence[str]) -> bool:
        """Return whether a document meets the condition. `values` are the document's values for `key`. At least
        one of them must fit, such as 2021 for `>=2020`. For `!=`, none of them may equal a value of the condition.
        Values are compared like words, without regard to case, accents and Unicode form. For `source`, only the
        Unicode form does not matter.
        """
        if self.operator in _ORDER:
            return any(_compared(self.operator, value, self.values[0]) for value in values)
        patterns, forms = _patterns(self.key, self.values), [_form(self.key, value) for value in values]
        equal = any(pattern.fullmatch(form) for pattern in patterns for form in forms)
        return equal == (self.operator == "=")


def parse_filter(given: str | Sequence[str]) -> tuple[Condition, ...]:
    """Read the conditions of a filter. A document must meet all of them.

    A condition is `KEY OPERATOR VALUE`. Keys: `source` (the uri), `title`, `level` (paragraph, table_row or
    subgraph), `time` (of a triple), `meta.NAME` (an entry of the document's metadata). The operators are `=`,
    `!=`, `<`, `<=`, `>` and `>=`. After `=` and `!=`, `*` stands for any text, `?` for any character, and `|`
    separates alternatives. `<`, `<=`, `>` and `>=` compare numbers as numbers and everything else, such as the
    date 2024-05-01, as text, without regard to case and accents.

    Raises `InputError` if a condition cannot be read.
    """
    return tuple(map(_condition, [given] if isinstance(given, str) else given))


def _condition(text: str) -> Condition:
    match = _CONDITION.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise InputError(
            f"filter {text!r}: expected KEY=VALUE, with source, title, level, time or meta.NAME as the key and"
            " =, !=, <, <=, > or >= as the operator"
        )
    key, operator, value = match[1], match[2], match[3].strip()
    if operator in _ORDER:
        if key == "level":
            raise InputError(f"filter {text!r}: levels have no order; use = or !=")
        return Condition(key, operator, (value,))
    values = tuple(part.strip() for part in value.split("|"))
    if key == "level" and not set(values) <= set(_LEVELS):
        raise InputError(f"filter {text!r}: the levels of passages are {', '.join(_LEVELS)}")
    return Condition(key, operator, values)


def _compared(operator: str, one: str, other: str) -> bool:
    try:
        return _ORDER[operator](float(one), float(other))
    except ValueError:
        return _ORDER[operator](compared(one), compared(other))


def _form(key: str, value: str) -> str:
    return unicodedata.normalize("NFC", value) if key == "source" else compared(value)


@lru_cache(256)
def _patterns(key: str, values: tuple[str, ...]) -> list[re.Pattern[str]]:
    """Compile the values of a condition to regular expressions. In a value, `*` stands for any text, and `?` for
    any character. The time of a match does not grow with a power of the length."""
    return [re.compile(translate(_form(key, value).replace("[", "[[]"))) for value in values]


def with_fitting_triples(document: Document, conditions: Sequence[Condition]) -> Document:
    """Return a knowledge graph with only the triples whose time meets all conditions on `time`. Return any
    other document unchanged.
    """
    timed = [condition for condition in conditions if condition.key == "time"]
    if not timed or not isinstance(document, KnowledgeGraph):
        return document
    fitting = (one for one in document.triples if all(it.fits([one.time] if one.time else []) for it in timed))
    return replace(document, triples=tuple(fitting))


def _values(corpus: Corpus, source: int, key: str) -> list[str]:
    """Return the values that a document has for `key`, the key of a condition. `source` is the number of the
    document. For `time`, the values are the times of its triples."""
    if key == "source":
        return [corpus.uri(source)]
    if key == "title":
        return [corpus.title(source)]
    root = int(corpus.roots[source])
    if key == "level":
        return ["table_row" if corpus.is_table(root) else "subgraph" if corpus.is_graph(root) else "paragraph"]
    if key == "time":
        return [one.time for one in corpus.triples(root) if one.time] if corpus.is_graph(root) else []
    value = corpus.metadata(root, as_written=True).get(key.removeprefix("meta."))
    values = value if isinstance(value, list) else [] if value is None else [value]
    return [form for one in values for form in _forms_of(one)]


def _forms_of(value: Any) -> list[str]:
    """Return a value as a string. For a whole number, return both of its forms, such as 2003 and 2003.0."""
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    whole = re.fullmatch(r"(-?\d+)(\.0+)?", text)
    return [text, whole[1], f"{whole[1]}.0"] if whole else [text]


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
        return self.manifest["parameters"]

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
        """Return a commit of only the documents that meet all conditions.

        If a condition concerns `time`, each part is followed by a new part, which contains the chosen documents,
        and the mask of the old part chooses none. In the new part, a knowledge graph contains only the triples
        that meet all conditions on `time`.

        Raises `InputError` if no document with passages meets the conditions.
        """
        parts: list[Part] = []
        known = {"source", "title", "level", "time"}
        masks: list[Mask] = []
        is_timed = any(condition.key == "time" for condition in conditions)
        for part, alive in zip(self.parts, self.live, strict=True):
            mask = alive.copy()
            for condition in conditions:
                for source in np.flatnonzero(mask).tolist():
                    values = _values(part.corpus, source, condition.key)
                    mask[source] = condition.fits(values)
                    if values:
                        known.add(condition.key)
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
        fitting = Commit(self.manifest, parts, masks)
        unknown = self._unknown({condition.key for condition in conditions} - known)
        if not any(kept.any() for kept in fitting.kept_passages()):
            raise InputError(f"no document matches {' and '.join(map(str, conditions))}{unknown}")
        if unknown:
            LOG.warning("filter %s%s", " and ".join(map(str, conditions)), unknown)
        return fitting

    def _unknown(self, keys: set[str]) -> str:
        """Say which of the keys of conditions no document has, and which keys there are. If there are none of the
        former, the result is empty."""
        if not keys:
            return ""
        known = {
            f"meta.{key}"
            for part, alive in zip(self.parts, self.live, strict=True)
            for source in np.flatnonzero(alive).tolist()
            for key in part.corpus.metadata(int(part.corpus.roots[source]))
        }
        if not (unknown := sorted(keys - known)):
            return ""
        return f": no document has {', '.join(unknown)}; keys in this index: {some(sorted(known), 20) or 'none'}"

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
            raise InputError("documents: none of these documents has passages")
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

    If files vanish while they are opened, because another process has erased earlier commits or built the index
    again, the function opens the new current commit.
    """
    while True:
        place = _inode(folder)
        manifest = read_manifest(folder, commit=number, check=False)
        try:
            manifest = read_manifest(folder, commit=number)
            entries, analysis = manifest["parts"], Analysis.of(manifest["parameters"])
            parts = [open_part(map_part(folder, manifest, entry["name"]), analysis) for entry in entries]
            if [part.corpus.documents for part in parts] != [entry["documents"] for entry in entries]:
                raise IndexFormatError(f"{folder}: a part does not match its documents; build the index again")
            return Commit(manifest, parts, [live_documents(folder, entry) for entry in entries])
        except (IndexFormatError, FileNotFoundError):
            is_current = number is not None or read_manifest(folder, check=False) == manifest
            if is_current and _inode(folder) == place:  # Else it may be built again from the same files.
                raise


def _inode(folder: Path) -> int | None:
    with suppress(FileNotFoundError):
        return folder.stat().st_ino
    return None
