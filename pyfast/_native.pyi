"""The native core. A test compares the parameter names with those in the module's own docstrings."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

_Bool: TypeAlias = npt.NDArray[np.bool_]
_UInt8: TypeAlias = npt.NDArray[np.uint8]
_UInt64: TypeAlias = npt.NDArray[np.uint64]
_Int32: TypeAlias = npt.NDArray[np.int32]
_Int64: TypeAlias = npt.NDArray[np.int64]
_Integers: TypeAlias = _Int32 | _Int64
_Float32: TypeAlias = npt.NDArray[np.float32]
_Float64: TypeAlias = npt.NDArray[np.float64]

# indptr, indices, data, number of columns
_Forward: TypeAlias = tuple[_Int32 | _Int64, _Int32 | _Int64, npt.NDArray[np.float32 | np.float64], int]
_Graph: TypeAlias = tuple[_Int64, _Int64, _Int32, _Float32]  # pool_offsets, indptr, indices, weights
_Pools: TypeAlias = tuple[_Int64, _Int32, _Float32]  # offsets, documents, scores
_Lists: TypeAlias = tuple[_Int64, _Int64]  # offsets, segments
_Columns: TypeAlias = tuple[_UInt8, _Integers, _Integers]  # level, parent, subtree_end
_Stream: TypeAlias = tuple[_Int64, _Int64, _UInt8, _UInt64]  # order, starts, tombstones: mask, live
_Cursors: TypeAlias = tuple[_Int64, _Lists, _Lists]  # place, selected, priors

# Of gatv2: float32 or float64, or the bits of bfloat16 as uint16.
_Features: TypeAlias = npt.NDArray[np.float32 | np.float64 | np.uint16]

class Error(ValueError):
    """Malformed input."""

def betweenness(g: _Graph, length: str | _Float64, k: int | None, seed: int, threads: int) -> _Float32: ...
def bm25(
    parts: list[tuple[npt.NDArray[Any], ...]],
    query_offsets: _Int64,
    query_terms: _Int32,
    k: int,
    filter: tuple[_Int64, _Int32] | None,
    k1: float,
    b: float,
    documents: _Int64,
    total_length: _Int64,
    threads: int,
) -> _Pools: ...
def bridge_expand(
    X: _Forward,
    XT: _Forward,
    seed_offsets: _Int64,
    seed_ids: _Int32,
    question_offsets: _Int64,
    question_ids: _Int32,
    k: int,
    largest_norm: float | None,
    max_entries: int | None,
    threads: int,
) -> _Pools: ...
def bridge_rank(
    X: _Forward,
    pool_offsets: _Int64,
    doc_ids: _Int32,
    semantic: _Float32,
    question_offsets: _Int64,
    question_ids: _Int32,
    edges: int,
    damping: float,
    sharpness: float,
    mix: float,
    threads: int,
) -> _Float32: ...
def bridge_select(
    X: _Forward,
    pool_offsets: _Int64,
    doc_ids: _Int32,
    semantic: _Float32,
    is_table: _UInt8,
    value_offsets: _Integers,
    term_offsets: _Integers,
    term_ids: _Int32,
    beta: float,
) -> _Float32: ...
def cite(
    columns: dict[str, npt.NDArray[Any]],
    offsets: _Int64,
    cited: _Int64,
    scores: _Float64,
    members: list[bytes],
    member_of: _Int32,
) -> list[bytes]: ...
def list_segments(
    columns: dict[str, npt.NDArray[Any]], offsets: _Int64, listed: _Int64, names: list[str], scores: _Float32
) -> list[bytes]: ...
def segment_ids(
    level: _UInt8,
    source: _Int32,
    start: _Integers,
    end: _Integers,
    triplets: _Int64,
    ordinal: _Int64,
    hashes: npt.NDArray[np.uint64],
    which: _Int64,
) -> npt.NDArray[np.uint64]: ...
def count_words(
    text_offsets: _Int64, bytes: _UInt8, separated: bool
) -> tuple[_Int64, _Int32, _Int32, list[str]]: ...
def eigenvector(
    g: _Graph, tolerance: float, max_iterations: int, threads: int
) -> tuple[_Float32, _Int64, _Bool]: ...  # centrality; of each pool: iterations, whether it converged
def evidence_graph(
    X: _Forward,
    pool_offsets: _Int64,
    doc_ids: _Int32,
    weight: str | int,
    idf: str,
    threshold: float,
    top_k: int | None,
    mask_terms: tuple[_Int64, _Int32] | None,
    threads: int,
) -> tuple[_Int64, _Int32, _Float32]: ...  # indptr, indices, weights
def fuse(list_offsets: _Int64, pool_offsets: _Int64, doc_ids: _Int32, semantic: _Float32, k: int) -> _Pools: ...

# All features of a call have one dtype. They are flat: [nodes * heads * channels], `att` [heads * channels].
def gatv2(
    x_src: _Features,
    x_dst: _Features,
    indptr: _Int64,
    indices: _Int32 | _Int64,
    att: _Features,
    heads: int,
    channels: int,
    negative_slope: float,
    self_loops: bool,
    dropout: float,
    seed: int,
    masked: bool,
    mask: _UInt8,
    threads: int,
) -> tuple[_Features, _Float32 | _Float64]: ...  # y, attention
def gatv2_backward(
    x_src: _Features,
    x_dst: _Features,
    indptr: _Int64,
    indices: _Int32 | _Int64,
    att: _Features,
    heads: int,
    channels: int,
    negative_slope: float,
    self_loops: bool,
    dropout: float,
    attention: _Float32 | _Float64,
    grad: _Features,
    wanted: tuple[bool, bool, bool],
    threads: int,
) -> tuple[_Features, _Features, _Features]: ...  # by x_src, x_dst, att; empty if not wanted
def graph_rank(semantic: _Float32, structural: _Float32, pool_offsets: _Int64, alpha: float) -> _Float32: ...
def hseq_check_subtree_ends(parent: _Integers, subtree_end: _Integers) -> None: ...
def hseq_delete_segments(
    columns: _Columns, stream: _Stream, segments: _Int64
) -> tuple[_UInt8, _UInt64]: ...  # mask, live
def hseq_mark_deleted(order: _Int64, starts: _Int64, mask: _UInt8) -> tuple[_UInt8, _UInt64]: ...  # mask, live
def hseq_neighbors(
    columns: _Columns, mask: _UInt8, segments: _Lists, selected: _Lists, kind: str, limit: int, threads: int
) -> _Lists: ...
def hseq_order(level: _UInt8, priority: _UInt8) -> tuple[_Int64, _Int64]: ...  # order, starts
def hseq_refresh(
    size: int, stream: _Stream, cursors: _Cursors, chosen: _Lists, past: int, threads: int
) -> tuple[_Int64, _Lists]: ...  # place, selected
def hseq_subtree_ends(parent: _Integers) -> _Int64: ...
def hseq_window(size: int, stream: _Stream, cursors: _Cursors, width: int, threads: int) -> _Lists: ...
def maxsim(
    queries: _Float32,
    query_offsets: _Int64,
    tokens: npt.NDArray[np.float32 | np.int8],
    scales: _Float32,
    token_offsets: _Int64,
    pairs: _Int64,
    dimensions: int,
    threads: int,
    level: str,
) -> _Float32: ...
def maxsim_level() -> str: ...
def narrate(
    line_offsets: _Int64, text: _UInt8, pool_offsets: _Int64, doc_ids: _Int32, characters: int
) -> list[str]: ...
def pagerank(
    g: _Graph, personalization: _Float32, damping: float, tolerance: float, max_iterations: int, threads: int
) -> tuple[_Float32, _Int64, _Bool]: ...  # rank; of each pool: iterations, whether it converged
def prune(
    score: _Float32, is_table: _UInt8, pool_offsets: _Int64, min_nodes: int, max_nodes: int, per_kind: int
) -> tuple[_Int64, _Int32]: ...  # offsets, nodes
def select_sentences(
    X: _Forward,
    pool_offsets: _Int64,
    sentence_offsets: _Int64,
    semantic: _Float32,
    lengths: _Int64,
    dependent: _UInt8,
    budgets: _Int64,
    threads: int,
) -> _UInt8: ...
def weighted_degree(
    X: _Forward, pool_offsets: _Int64, doc_ids: _Int32, weight: str | int, idf: str, threads: int
) -> _Float32: ...

# Device memory: (address, number of elements). The dtypes are those of the functions above.
_Memory: TypeAlias = tuple[int, int]
_RaggedMemory: TypeAlias = tuple[_Memory, _Memory]
# indptr, whether it is int64, indices, data, number of columns
_ForwardMemory: TypeAlias = tuple[_Memory, bool, _Memory, bool, _Memory, int]
_Bounds: TypeAlias = tuple[int, int, int]  # documents of the largest pool, sum of the pools' squares, all entries
_Queue: TypeAlias = tuple[int, int, _Memory]  # stream, address of the status word, workspace
_StreamMemory: TypeAlias = tuple[int, _Memory, _Memory, _Memory]  # size, order, tombstones: mask, live
_CursorMemory: TypeAlias = tuple[_Memory, _RaggedMemory, _RaggedMemory]  # place, selected, priors
# x_src, x_dst, indptr, indices, whether they are int64, att, heads, channels
_LayerMemory: TypeAlias = tuple[_Memory, _Memory, _Memory, _Memory, bool, _Memory, int, int]
# negative_slope, self_loops, dropout, seed, mask
_Settings: TypeAlias = tuple[float, bool, float, int, _Memory | None]
_Gradients: TypeAlias = tuple[_Memory, _Memory, _Memory]  # by x_src, x_dst, att; empty if not wanted

class cuda:
    """The ops on a GPU: a submodule that exists only where they are built. Results are written to the
    caller's memory.
    """

    class DeviceError(RuntimeError):
        """The GPU or its driver rejected the call."""

    @staticmethod
    def devices() -> tuple[int, str]: ...  # how many, why there are none
    @staticmethod
    def device_name(device: int) -> str: ...
    @staticmethod
    def raise_faults(status: int) -> None: ...
    @staticmethod
    def pool_bounds(X: _ForwardMemory, pools: _RaggedMemory, bounds: _Memory, queue: _Queue) -> None: ...
    @staticmethod
    def evidence_graph_workspace(pool_count: int, node_count: int, bounds: _Bounds) -> int: ...
    @staticmethod
    def evidence_graph_count(
        X: _ForwardMemory,
        pools: _RaggedMemory,
        mask_terms: _RaggedMemory | None,
        weight: str,
        threshold: float,
        top_k: int | None,
        bounds: _Bounds,
        indptr: _Memory,
        queue: _Queue,
    ) -> None: ...
    @staticmethod
    def evidence_graph_fill(
        pools: _RaggedMemory,
        weight: str,
        threshold: float,
        top_k: int | None,
        bounds: _Bounds,
        indptr: _Memory,
        indices: _Memory,
        weights: _Memory,
        queue: _Queue,
    ) -> None: ...
    @staticmethod
    def gatv2(
        is_bfloat16: bool, layer: _LayerMemory, settings: _Settings, y: _Memory, attention: _Memory, queue: _Queue
    ) -> None: ...
    @staticmethod
    def gatv2_backward_workspace(
        is_bfloat16: bool, layer: _LayerMemory, settings: _Settings, gradients: _Gradients
    ) -> int: ...
    @staticmethod
    def gatv2_backward(
        is_bfloat16: bool,
        layer: _LayerMemory,
        settings: _Settings,
        attention: _Memory,
        grad: _Memory,
        gradients: _Gradients,
        queue: _Queue,
    ) -> None: ...
    @staticmethod
    def graph_rank(
        semantic: _Memory, structural: _Memory, pool_offsets: _Memory, alpha: float, score: _Memory, queue: _Queue
    ) -> None: ...
    @staticmethod
    def degree_rank(
        X: _ForwardMemory,
        pools: _RaggedMemory,
        semantic: _Memory,
        weight: str,
        alpha: float,
        degree: _Memory,
        score: _Memory,
        queue: _Queue,
    ) -> None: ...
    @staticmethod
    def window_workspace(stream: _StreamMemory, cursors: _CursorMemory, width: int) -> int: ...
    @staticmethod
    def window(
        stream: _StreamMemory,
        cursors: _CursorMemory,
        width: int,
        offsets: _Memory,
        segments: _Memory,
        queue: _Queue,
    ) -> None: ...
    @staticmethod
    def refresh_workspace(cursors: _CursorMemory, chosen: _RaggedMemory) -> int: ...
    @staticmethod
    def refresh(
        stream: _StreamMemory,
        cursors: _CursorMemory,
        chosen: _RaggedMemory,
        past: int,
        place: _Memory,
        offsets: _Memory,
        segments: _Memory,
        queue: _Queue,
    ) -> None: ...
    @staticmethod
    def maxsim_workspace(query_tokens: int, dimensions: int) -> int: ...
    @staticmethod
    def maxsim(
        queries: _Memory,
        query_offsets: _Memory,
        tokens: _Memory,
        scales: _Memory | None,  # with them tokens are int8
        token_offsets: _Memory,
        pairs: _Memory,
        dimensions: int,
        precision: str,
        scores: _Memory,
        queue: _Queue,
    ) -> None: ...
    @staticmethod
    def pagerank_workspace(node_count: int, edge_count: int) -> int: ...
    @staticmethod
    def pagerank(
        g: tuple[_Memory, _Memory, _Memory, _Memory],
        personalization: _Memory,
        damping: float,
        tolerance: float,
        max_iterations: int,
        rank: _Memory,
        converged: _Memory,  # uint8 per pool
        queue: _Queue,
    ) -> None: ...
    @staticmethod
    def weighted_degree_workspace(node_count: int) -> int: ...
    @staticmethod
    def weighted_degree(
        X: _ForwardMemory,
        pools: _RaggedMemory,
        weight: str,
        degree: _Memory,
        queue: _Queue,
    ) -> None: ...
