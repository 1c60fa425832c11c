"""The native ops (functions in C++) of pyfast: graphs, centralities, rankings and attention, over batches of
pools.

A *pool* is the list of documents that one question retrieved. A batch has P pools of different sizes. Pool p is
`doc_ids[pool_offsets[p]:pool_offsets[p + 1]]`. Document ids are rows of the forward index `X`, a
`scipy.sparse.csr_array` of documents x terms with float32 TF-IDF weights. N is the number of documents in all
pools.

Every op follows these rules:

- The op releases the GIL, reads arrays in place and never writes to them. Do not change an array before the op
  returns.
- The result of a pool does not depend on the other pools of the batch or on `threads`. A call with the same
  arguments always returns the same result, bit for bit.
- `threads` is the number of threads. None: the op uses the first of these numbers that is set: the environment
  variable PYFAST_THREADS, the environment variable OMP_NUM_THREADS, or torch's number of threads (if torch is
  imported). If no such number is set, the op uses all cores that this process may use.
- Tests compare the results with those of slow reference implementations in Python.

Some ops do not work on pools. `maxsim` compares queries with documents token by token. `narrate` writes a
pool as text, and `cite` writes segments as evidence. `hseq_stream` shows the segments of a corpus to
questions, window by window. `gatv2` computes graph attention on any graph, for NumPy arrays or torch tensors.
"""

from pyfast.ops.betweenness import betweenness
from pyfast.ops.bm25 import TermCounts, bm25
from pyfast.ops.bridge_expand import bridge_expand
from pyfast.ops.bridge_rank import bridge_rank
from pyfast.ops.bridge_select import Cells, bridge_select
from pyfast.ops.cite import Segments, cite, list_segments, segment_ids
from pyfast.ops.count_words import count_words
from pyfast.ops.eigenvector import eigenvector
from pyfast.ops.evidence_graph import EvidenceGraph, evidence_graph, shared_terms
from pyfast.ops.fuse import fuse
from pyfast.ops.gatv2 import gatv2
from pyfast.ops.graph_rank import graph_rank
from pyfast.ops.hseq_stream import Cursors, Stream, hseq_stream
from pyfast.ops.maxsim import maxsim
from pyfast.ops.narrate import narrate
from pyfast.ops.pagerank import pagerank
from pyfast.ops.prune import prune
from pyfast.ops.select_sentences import select_sentences
from pyfast.ops.weighted_degree import weighted_degree

__all__ = [
    "Cells",
    "Cursors",
    "EvidenceGraph",
    "Segments",
    "Stream",
    "TermCounts",
    "betweenness",
    "bm25",
    "bridge_expand",
    "bridge_rank",
    "bridge_select",
    "cite",
    "count_words",
    "eigenvector",
    "evidence_graph",
    "fuse",
    "gatv2",
    "graph_rank",
    "hseq_stream",
    "list_segments",
    "maxsim",
    "narrate",
    "pagerank",
    "prune",
    "segment_ids",
    "select_sentences",
    "shared_terms",
    "weighted_degree",
]
