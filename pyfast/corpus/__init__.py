"""Documents (texts, tables, knowledge graphs) and the sequence of segments made from them."""

from pyfast.corpus.documents import Document, Heading, KnowledgeGraph, Outline, Table, TextDocument, Triple, Unread
from pyfast.corpus.encode import decode, encode
from pyfast.corpus.entity_links import EntityLinks, entity_links
from pyfast.corpus.levels import Level
from pyfast.corpus.readers import Reader, read
from pyfast.corpus.sequence import Corpus
from pyfast.corpus.views import PRIORITY, GraphView, TableView, TextView, stream, view

__all__ = [
    "PRIORITY",
    "Corpus",
    "Document",
    "EntityLinks",
    "GraphView",
    "Heading",
    "KnowledgeGraph",
    "Level",
    "Outline",
    "Reader",
    "Table",
    "TableView",
    "TextDocument",
    "TextView",
    "Triple",
    "Unread",
    "decode",
    "encode",
    "entity_links",
    "read",
    "stream",
    "view",
]
