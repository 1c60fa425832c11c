"""What an index's documents say, as a graph: read by a language model or straight, searched by vectors."""

from pyfast.knowledge.records import Extract, Mention, Statement, Writer
from pyfast.knowledge.search import Found, neighbours, search_entities, search_facts, search_keys
from pyfast.knowledge.session import Learned, Session, open_session
from pyfast.knowledge.store import Knowledge, change, has_knowledge, open_knowledge
from pyfast.knowledge.straight import read_straight

__all__ = [
    "Extract",
    "Found",
    "Knowledge",
    "Learned",
    "Mention",
    "Session",
    "Statement",
    "Writer",
    "change",
    "has_knowledge",
    "neighbours",
    "open_knowledge",
    "open_session",
    "read_straight",
    "search_entities",
    "search_facts",
    "search_keys",
]
