"""Build, open, change and search the index of a corpus."""

from pyfast.retrieval.evidence import ScoredSegments as ScoredSegments
from pyfast.retrieval.evidence import cite as cite
from pyfast.retrieval.evidence import evidence_of as evidence_of
from pyfast.retrieval.evidence import narrate as narrate
from pyfast.retrieval.evidence import narrate_sentences as narrate_sentences
from pyfast.retrieval.index.builder import BuildProgress as BuildProgress
from pyfast.retrieval.index.builder import build_index as build_index
from pyfast.retrieval.index.index import Index as Index
from pyfast.retrieval.pools import Pool as Pool
from pyfast.retrieval.pools import Reranker as Reranker
from pyfast.retrieval.pools import Retriever as Retriever
from pyfast.retrieval.pools import fuse as fuse
from pyfast.retrieval.rerank import Centrality as Centrality
from pyfast.retrieval.rerank import PassageList as PassageList
from pyfast.retrieval.rerank import Rank as Rank
from pyfast.retrieval.rerank import RerankConfig as RerankConfig
from pyfast.retrieval.rerank import bridge_select as bridge_select
from pyfast.retrieval.rerank import pool_ids as pool_ids
from pyfast.retrieval.rerank import rerank_lists as rerank_lists
from pyfast.retrieval.rerank import rerank_pools as rerank_pools
from pyfast.retrieval.rerank import search as search
from pyfast.retrieval.rerank import search_and_fuse as search_and_fuse
from pyfast.retrieval.rerank import segment_ids as segment_ids
from pyfast.retrieval.rerank import traced as traced
