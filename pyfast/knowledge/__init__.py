"""The knowledge graph of an index: its extraction, its storage and its search.

An LLM extracts triples from chunks (pieces) of documents, or rules extract them without an LLM.
`build_knowledge` writes the triples to a snapshot: one version of the knowledge graph, which never changes.
Through a `Session`, the questions of one run use the knowledge graph.
"""

from pyfast.knowledge.build import add_extracts as add_extracts
from pyfast.knowledge.build import build_knowledge as build_knowledge
from pyfast.knowledge.build import merge_knowledge as merge_knowledge
from pyfast.knowledge.build import merge_learned as merge_learned
from pyfast.knowledge.build import prune_knowledge as prune_knowledge
from pyfast.knowledge.build import reset_knowledge as reset_knowledge
from pyfast.knowledge.build import update_knowledge as update_knowledge
from pyfast.knowledge.extracts import Extract as Extract
from pyfast.knowledge.extracts import Mention as Mention
from pyfast.knowledge.extracts import Statement as Statement
from pyfast.knowledge.rule_based import extract_by_rules as extract_by_rules
from pyfast.knowledge.session import Session as Session
from pyfast.knowledge.session import open_session as open_session
from pyfast.knowledge.snapshots import has_knowledge as has_knowledge
from pyfast.knowledge.snapshots import open_knowledge as open_knowledge
from pyfast.knowledge.store import Knowledge as Knowledge
from pyfast.knowledge.store import export_graph as export_graph
