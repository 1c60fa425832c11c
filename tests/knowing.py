"""An index with knowledge for tests: read without a model, and with vectors of words."""

from word_vectors import WordVectors

from pyfast.knowledge import Session, Writer, change, read_straight
from pyfast.retrieval import Index


def know(index: Index) -> Session:
    """The index's knowledge, made in its folder."""
    extracts = read_straight(index)
    return Session(index, change(index, WordVectors(), lambda database: Writer(database).add(extracts)))
