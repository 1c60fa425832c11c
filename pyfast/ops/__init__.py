"""The native ops. Each takes a batch of pools, releases the GIL, and has a slow NumPy reference beside it.

A *pool* is the retrieved list of one question. A batch is ragged: pool p is
`doc_ids[pool_offsets[p]:pool_offsets[p + 1]]`, rows of the forward index `X` (`scipy.sparse.csr_array`,
documents x terms, float32 TF-IDF weights). Arrays are read where they lie, never written to, and must stand still
until the op returns. The result of a pool is bitwise the same alone, in any batch, and
with any number of `threads`. So it is for `narrate` and `cite`, which write what is read of pools, and for
`hseq_stream`, which has questions go through the segments of a corpus. `gatv2` takes any graph, as NumPy arrays or
torch tensors.
"""

from pyfast.ops.betweenness import betweenness
from pyfast.ops.bridge_expand import bridge_expand
from pyfast.ops.bridge_rank import bridge_rank
from pyfast.ops.bridge_select import Cells, bridge_select
from pyfast.ops.cite import Segments, cite
from pyfast.ops.eigenvector import eigenvector
from pyfast.ops.evidence_graph import EvidenceGraph, evidence_graph, shared_terms
from pyfast.ops.fuse import fuse
from pyfast.ops.gatv2 import gatv2
from pyfast.ops.graph_rank import graph_rank
from pyfast.ops.hseq_stream import Cursors, Stream, hseq_stream
from pyfast.ops.narrate import narrate
from pyfast.ops.pagerank import pagerank
from pyfast.ops.prune import prune
from pyfast.ops.weighted_degree import weighted_degree

__all__ = [
    "Cells",
    "Cursors",
    "EvidenceGraph",
    "Segments",
    "Stream",
    "betweenness",
    "bridge_expand",
    "bridge_rank",
    "bridge_select",
    "cite",
    "eigenvector",
    "evidence_graph",
    "fuse",
    "gatv2",
    "graph_rank",
    "hseq_stream",
    "narrate",
    "pagerank",
    "prune",
    "shared_terms",
    "weighted_degree",
]
