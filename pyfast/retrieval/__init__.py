"""The index of a corpus: its forward index, its lexical index, the folder that holds them; and pools from it."""

from pyfast.retrieval.curation import Centrality, Curation, Rank, bridge_select, curate, search_and_merge
from pyfast.retrieval.index import Index, build_index
from pyfast.retrieval.pieces import find_pieces
from pyfast.retrieval.pools import Pool, merge, merge_each
from pyfast.retrieval.texts import Evidence, cite, evidence_of, narrate

__all__ = [
    "Centrality",
    "Curation",
    "Evidence",
    "Index",
    "Pool",
    "Rank",
    "bridge_select",
    "build_index",
    "cite",
    "curate",
    "evidence_of",
    "find_pieces",
    "merge",
    "merge_each",
    "narrate",
    "search_and_merge",
]
