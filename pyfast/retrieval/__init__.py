"""The index of a corpus: its forward index, its lexical index, and the folder that holds them."""

from pyfast.retrieval.index import Index, Pool, build_index

__all__ = ["Index", "Pool", "build_index"]
