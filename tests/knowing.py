"""An index with knowledge for tests: extracted by rules, and with vectors of words."""

from word_vectors import WordVectors

from pyfast.knowledge import Session, add_extracts, extract_by_rules
from pyfast.retrieval import Index


def know(index: Index) -> Session:
    """The index's knowledge, made in its folder."""
    return Session(index, add_extracts(index, WordVectors(), extract_by_rules(index)))
