"""Read N-Triples and Turtle as a knowledge graph. The name of a node is its label. A node without a label gets the
last part of its IRI as its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pyfast.corpus.documents import Document, KnowledgeGraph, Triple
from pyfast.corpus.formats.names import title_of
from pyfast.errors import InputError

_LABELS = ("http://www.w3.org/2000/01/rdf-schema#label", "http://www.w3.org/2004/02/skos/core#prefLabel")
_LAST_PART = re.compile(r"[^/#:]+(?=[/#]*$)")


def read_rdf(uri: str, path: Path) -> Iterator[Document]:
    """Read the graph of a file. Triples that only give an IRI its label are left out."""
    import pyoxigraph

    turtle = path.suffix.lower() in (".ttl", ".turtle")
    format_ = pyoxigraph.RdfFormat.TURTLE if turtle else pyoxigraph.RdfFormat.N_TRIPLES

    def parsed() -> Iterator[tuple[Any, Any, Any]]:
        for it in pyoxigraph.parse(path=str(path), format=format_):
            yield it.subject, it.predicate, it.object

    names = _Names()
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
            if predicate.value not in _LABELS
        ]
    except (SyntaxError, ValueError) as error:
        raise InputError(f"{path}: {' '.join(str(error).split())}; correct the file") from error
    del kept
    yield KnowledgeGraph(uri, title_of(path), tuple(facts))


class _Names:
    """A distinct name for each node."""

    def __init__(self) -> None:
        self._labels: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._taken: set[str] = set()

    def label(self, node: Any, value: Any) -> None:
        """Use a label as the node's name. English labels take precedence over other languages."""
        key = str(node)
        if value.value.strip() and (key not in self._labels or (value.language or "en").startswith("en")):
            self._labels[key] = value.value.strip()

    def of(self, node: Any) -> str:
        import pyoxigraph

        if isinstance(node, pyoxigraph.Literal):
            return str(node.value)
        key = str(node)
        name = self._names.get(key)
        if name is None:
            last = _LAST_PART.search(getattr(node, "value", key))
            name = self._labels.get(key) or (unquote(last[0]).replace("_", " ") if last else key)
            if name in self._taken:
                name = f"{name} {key}"
            self._taken.add(name)
            self._names[key] = name
        return name
