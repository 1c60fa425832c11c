"""What an index's documents say, as a graph: read by a language model or straight, searched by vectors."""

from pyfast.knowledge.records import Extract, Mention, Statement, Writer
from pyfast.knowledge.search import Found, neighbours, search_entities, search_facts, search_keys
from pyfast.knowledge.session import Learned, Session, open_session
from pyfast.knowledge.snapshots import change, has_knowledge, open_knowledge
from pyfast.knowledge.store import Knowledge
from pyfast.knowledge.straight import read_straight
from pyfast.knowledge.units import Keywords, Unit, knowledge_units

__all__ = [
    "Extract",
    "Found",
    "Keywords",
    "Knowledge",
    "Learned",
    "Mention",
    "Session",
    "Statement",
    "Unit",
    "Writer",
    "change",
    "has_knowledge",
    "knowledge_units",
    "neighbours",
    "open_knowledge",
    "open_session",
    "read_straight",
    "search_entities",
    "search_facts",
    "search_keys",
]
