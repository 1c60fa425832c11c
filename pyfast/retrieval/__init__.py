"""The index of a corpus: its forward index, its lexical index, the folder that holds them; and pools from it."""

from pyfast.retrieval.cover import Cover, pick_cover
from pyfast.retrieval.curation import Centrality, Curation, Rank, bridge_select, curate, search_and_merge
from pyfast.retrieval.index import Index, build_index
from pyfast.retrieval.package import Package, canonicalize
from pyfast.retrieval.pieces import find_pieces
from pyfast.retrieval.pools import Pool, merge, merge_each
from pyfast.retrieval.texts import Evidence, cite, evidence_of, narrate
from pyfast.retrieval.windows import Candidate, Move, View, candidates, move_on, open_window

__all__ = [
    "Candidate",
    "Centrality",
    "Cover",
    "Curation",
    "Evidence",
    "Index",
    "Move",
    "Package",
    "Pool",
    "Rank",
    "View",
    "bridge_select",
    "build_index",
    "candidates",
    "canonicalize",
    "cite",
    "curate",
    "evidence_of",
    "find_pieces",
    "merge",
    "merge_each",
    "move_on",
    "narrate",
    "open_window",
    "pick_cover",
    "search_and_merge",
]
