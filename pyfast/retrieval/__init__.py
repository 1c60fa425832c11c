"""The index of a corpus: its forward index, its lexical index, the folder that holds them; and pools from it."""

from pyfast.retrieval.curation import Curation, Rank, bridge_select, curate, narrate
from pyfast.retrieval.index import Index, build_index
from pyfast.retrieval.pools import Pool, merge

__all__ = [
    "Curation",
    "Index",
    "Pool",
    "Rank",
    "bridge_select",
    "build_index",
    "curate",
    "merge",
    "narrate",
]
