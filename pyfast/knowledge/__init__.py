"""The knowledge graph of an index: its extraction, its storage and its search.

An LLM extracts triples from chunks (pieces) of documents, or rules extract them without an LLM.
`build_knowledge` writes the triples to a snapshot: one version of the knowledge graph, which never changes.
Through a `Session`, the questions of one run use the knowledge graph.
"""

from pyfast.knowledge.build import add_extracts, build_knowledge, prune_knowledge, update_knowledge
from pyfast.knowledge.extracts import Extract, Mention, Statement
from pyfast.knowledge.knowledge_units import Keywords, KnowledgeUnit, knowledge_units
from pyfast.knowledge.merge import merge_knowledge, merge_learned, reset_knowledge
from pyfast.knowledge.rule_based import extract_by_rules
from pyfast.knowledge.session import Learned, Session, open_session
from pyfast.knowledge.snapshots import has_knowledge, open_knowledge
from pyfast.knowledge.store import Knowledge, export_graph

__all__ = [
    "Extract",
    "Keywords",
    "Knowledge",
    "KnowledgeUnit",
    "Learned",
    "Mention",
    "Session",
    "Statement",
    "add_extracts",
    "build_knowledge",
    "export_graph",
    "extract_by_rules",
    "has_knowledge",
    "knowledge_units",
    "merge_knowledge",
    "merge_learned",
    "open_knowledge",
    "open_session",
    "prune_knowledge",
    "reset_knowledge",
    "update_knowledge",
]
