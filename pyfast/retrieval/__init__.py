"""Build, open, change and search the index of a corpus."""

from pyfast.retrieval.building import BuildProgress, build_index
from pyfast.retrieval.evidence import (
    EvidencePackage,
    ScoredSegments,
    canonicalize,
    cite,
    evidence_of,
    find_evidence_items,
    narrate,
)
from pyfast.retrieval.index import Index
from pyfast.retrieval.plug_ins import Reranker, Retriever
from pyfast.retrieval.pools import Pool, fuse
from pyfast.retrieval.rerank import (
    Centrality,
    Rank,
    RerankConfig,
    bridge_select,
    rerank_lists,
    rerank_pools,
    search,
    search_and_fuse,
)
from pyfast.retrieval.strongest_edges import PassageList, RankedPool, pool_ids, segment_ids, traced, write_lists
from pyfast.retrieval.windows import (
    Candidate,
    LexicalSelection,
    Move,
    View,
    candidates,
    move_on,
    open_window,
    select_lexically,
)

__all__ = [
    "BuildProgress",
    "Candidate",
    "Centrality",
    "EvidencePackage",
    "Index",
    "LexicalSelection",
    "Move",
    "PassageList",
    "Pool",
    "Rank",
    "RankedPool",
    "RerankConfig",
    "Reranker",
    "Retriever",
    "ScoredSegments",
    "View",
    "bridge_select",
    "build_index",
    "candidates",
    "canonicalize",
    "cite",
    "evidence_of",
    "find_evidence_items",
    "fuse",
    "move_on",
    "narrate",
    "open_window",
    "pool_ids",
    "rerank_lists",
    "rerank_pools",
    "search",
    "search_and_fuse",
    "segment_ids",
    "select_lexically",
    "traced",
    "write_lists",
]
