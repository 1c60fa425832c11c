"""Read N-Triples and Turtle as a knowledge graph. The name of a node is its label. A node without a label gets the
last part of its IRI as its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pyfast.corpus.documents import Document, KnowledgeGraph, Triple, Unread
from pyfast.corpus.formats.files import refuse_binary
from pyfast.corpus.grids import title_of
from pyfast.errors import InputError

_LABELS = ("http://www.w3.org/2000/01/rdf-schema#label", "http://www.w3.org/2004/02/skos/core#prefLabel")
_LAST_PART = re.compile(r"[^/#:]+(?=[/#]*$)")
_MADE_UP = re.compile(r"[a-f][0-9a-f]{23,31}")
"""The name that pyoxigraph gives to a node without a name. It differs each time the file is read"""
_AT_ONCE = 1 << 20


def read_rdf(uri: str, path: Path) -> Iterator[Document | Unread]:
    """Read the graph of a file. A triple that gives an IRI its name is left out, if another triple has the IRI.

    Other labels of an IRI are facts about it if they are in the language of its name, or in none. An `Unread`
    has the numbers of those that are left out. A bad line of N-Triples is left out alone.
    """
    refuse_binary(path)
    import pyoxigraph

    turtle = path.suffix.lower() in (".ttl", ".turtle")
    faults: dict[int, str] = {}

    def parsed() -> Iterator[tuple[Any, Any, Any]]:
        whole = pyoxigraph.RdfFormat.TURTLE
        for it in pyoxigraph.parse(path=str(path), format=whole) if turtle else _in_lines(path, faults):
            yield it.subject, it.predicate, it.object

    names = _Names(uri)
    try:
        # N-Triples are read twice, which takes less memory than to keep them. In Turtle, each reading gives other
        # names to nodes without a name.
        kept = list(parsed()) if turtle else None
        for subject, predicate, value in kept or parsed():
            if predicate.value in _LABELS and isinstance(value, pyoxigraph.Literal):
                names.label(subject, value)
        facts = [
            Triple(names.of(subject), names.of(predicate), names.of(value))
            for subject, predicate, value in kept or parsed()
            if predicate.value not in _LABELS or names.is_other(subject, value)
        ]
        alone = names.unused()
    except (SyntaxError, ValueError) as error:
        raise InputError(f"{path}: {' '.join(str(error).split())}; correct the file") from error
    del kept
    facts += [Triple(name, "label", name) for name in alone]
    if facts or not faults:
        yield KnowledgeGraph(uri, title_of(path), tuple(facts))
    for line, why in faults.items():
        yield Unread(path, f"line {line}: {why}; this line is left out")
    if names.left_out:
        what = f"labels left out because their language differs from that of the names: {names.left_out}"
        yield Unread(path, what, missing=False)


def _in_lines(path: Path, faults: dict[int, str]) -> Iterator[Any]:
    """Yield the triples of N-Triples. `faults` gets the numbers of the bad lines, and what is wrong with them."""
    from pyoxigraph import RdfFormat, parse

    before = 0
    with path.open("rb") as file:
        while lines := file.readlines(_AT_ONCE):
            try:
                yield from list(parse(b"".join(lines), format=RdfFormat.N_TRIPLES))
            except SyntaxError:  # After some faults, such as an open quote, the parser would miss the lines below.
                for number, line in enumerate(lines, start=before + 1):
                    try:
                        yield from list(parse(line, format=RdfFormat.N_TRIPLES))
                    except SyntaxError as error:
                        faults[number] = str(error.msg).partition(": ")[2].strip()
            before += len(lines)


def _language(value: Any) -> str:
    """The language of a label, empty for English and for none."""
    language = str(value.language or "").lower()
    return "" if language.startswith("en") else language


class _Names:
    """A distinct name for each node. The name of a blank node holds only in its file: `_:a.ttl#1`."""

    def __init__(self, uri: str) -> None:
        import pyoxigraph

        self._uri, self._literal, self._blank = uri, pyoxigraph.Literal, pyoxigraph.BlankNode
        self._labels: dict[str, str] = {}
        self._languages: dict[str, str] = {}
        self.left_out = 0
        self._names: dict[str, str] = {}
        self._taken: set[str] = set()
        self._nameless = 0

    def label(self, node: Any, value: Any) -> None:
        """Use a label as the node's name. English labels take precedence over other languages."""
        key, language = str(node), _language(value)
        if value.value.strip() and (key not in self._labels or not language):
            self._labels[key], self._languages[key] = value.value.strip(), language

    def is_other(self, node: Any, value: Any) -> bool:
        """Whether a label of a node is not its name, and in the language of its name."""
        if not isinstance(value, self._literal):
            return True
        key, text = str(node), value.value.strip()
        if not text or text == self._labels[key]:
            return False
        if _language(value) in ("", self._languages.get(key, "")):
            return True
        self.left_out += 1
        return False

    def unused(self) -> list[str]:
        """The names of the nodes that no triple has."""
        return [name for key, name in self._labels.items() if key not in self._names]

    def of(self, node: Any) -> str:
        if isinstance(node, self._literal):
            return str(node.value)
        key = str(node)
        name = self._names.get(key)
        if name is None:
            shown, last = key, None
            if not isinstance(node, self._blank):
                last = _LAST_PART.search(getattr(node, "value", key))
            else:
                made_up = _MADE_UP.fullmatch(node.value)
                self._nameless += bool(made_up)
                shown = f"_:{self._uri}#{self._nameless if made_up else node.value}"
            name = self._labels.get(key) or (unquote(last[0]).replace("_", " ") if last else shown)
            if name in self._taken:
                name = f"{name} {shown}"
            self._taken.add(name)
            self._names[key] = name
        return name
