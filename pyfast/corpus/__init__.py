"""Documents (text, tables, knowledge graphs), one hierarchical sequence of them, and the exact way back."""

from pyfast.corpus.decode import decode
from pyfast.corpus.documents import Document, KnowledgeGraph, Table, TextDocument, Triple
from pyfast.corpus.encode import encode
from pyfast.corpus.levels import Level
from pyfast.corpus.readers import read
from pyfast.corpus.relations import Relations, relations
from pyfast.corpus.sequence import Corpus
from pyfast.corpus.stream import stream

__all__ = [
    "Corpus",
    "Document",
    "KnowledgeGraph",
    "Level",
    "Relations",
    "Table",
    "TextDocument",
    "Triple",
    "decode",
    "encode",
    "read",
    "relations",
    "stream",
]
