#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "pools.cuh"
#include "pyfast/cuda/evidence_graph.hpp"
#include "pyfast/error.hpp"
#include "row_table.cuh"
#include "scan.cuh"

namespace pyfast::cuda {

namespace {

constexpr int threads = 128;
constexpr int warps = threads / lanes;
constexpr std::size_t most_parts = 32'768;  // parts of a pool at most, for the second dimension of a grid

// The weights between all documents of each pool. The matrix of pool p starts at begin[p]; its diagonal is -1.
struct Matrices {
    std::int64_t* begin;  // [P + 1]
    float* weights;
    std::int64_t* scan;
};

struct Selection {
    float threshold;
    std::int64_t top_k;  // 0: all
};

// Where edges are written.
struct Edges {
    std::int32_t* indices;
    float* weights;
    std::int64_t room;
};

// One row of a matrix, and its node.
struct MatrixRow {
    const float* weights;
    std::int64_t size;
    std::int64_t node;
};

// The rows i of the pools, one warp each: pools along the grid's first dimension, parts of a pool along the
// second. Calls use(pool, first, n, i) with the pool's first node, its number of documents and the row.
template <class Use>
__device__ void each_row(const std::int64_t* offsets, std::int64_t pools, const Use& use) {
    for (std::int64_t p = blockIdx.x; p < pools; p += gridDim.x) {
        const std::int64_t first = offsets[p];
        const std::int64_t n = offsets[p + 1] - first;
        for (std::int64_t i = blockIdx.y * warps + warp_of_thread(); i < n; i += gridDim.y * warps) {
            use(p, first, n, i);
        }
    }
}

__global__ void check_masked_kernel(RaggedArrays<std::int32_t> masked, std::int64_t terms, std::int32_t* status) {
    for (std::int64_t i = thread_of_grid(); i < masked.lists || i < masked.size; i += threads_of_grid()) {
        if (i < masked.lists && !offsets_hold(masked, i)) {
            report(status, Fault::offsets);
        }
        if (i < masked.size && (masked.values[i] < 0 || masked.values[i] >= terms)) {
            report(status, Fault::masked);
        }
    }
}

__global__ void square_kernel(PoolArrays pools, std::int64_t* squares, const std::int32_t* status) {
    if (*status != 0) {
        return;
    }
    for (std::int64_t p = thread_of_grid(); p <= pools.lists; p += threads_of_grid()) {
        const std::int64_t n = p == 0 ? 0 : pools.offsets[p] - pools.offsets[p - 1];
        squares[p] = n * n;
    }
}

[[nodiscard]] __device__ inline float share(EdgeWeight weight, float x, float y) {
    return weight == EdgeWeight::sum ? x + y : weight == EdgeWeight::dot ? x * y : y < x ? y : x;
}

[[nodiscard]] __device__ inline bool is_masked(const RaggedArrays<std::int32_t>& masked, std::int64_t pool,
                                               std::int32_t term) {
    bool found = false;
    if (masked.offsets != nullptr) {
        for (std::int64_t m = masked.offsets[pool]; m < masked.offsets[pool + 1]; ++m) {
            found |= masked.values[m] == term;
        }
    }
    return found;
}

// The part of row i that i's warp computes. Of two documents, the one with the lower number has the table, and the
// weight goes to both rows. So a weight depends only on its two documents, and documents that occur twice in a
// pool tie.
__global__ void weigh_kernel(ForwardArrays x, PoolArrays pools, RaggedArrays<std::int32_t> masked,
                             EdgeWeight weight, Matrices matrices, const std::int32_t* status) {
    if (*status != 0) {
        return;
    }
    GPU_SHARED(std::int32_t, terms, warps* RowTable::slots);
    GPU_SHARED(float, weights, warps* RowTable::slots);
    const RowTable table{terms + warp_of_thread() * RowTable::slots, weights + warp_of_thread() * RowTable::slots};
    const int lane = lane_of_thread();
    each_row(pools.offsets, pools.lists, [&](std::int64_t p, std::int64_t first, std::int64_t n, std::int64_t i) {
        float* const matrix = matrices.weights + matrices.begin[p];
        const std::int32_t own = pools.values[first + i];
        const std::int64_t end = x.offset(own + 1);
        std::int64_t begin = x.offset(own);
        bool more = false;
        do {  // one table of terms at a time; rarely more than one
            table.clear();
            const std::int64_t stop = end - begin > RowTable::most ? begin + RowTable::most : end;
            for (std::int64_t e = begin + lane; e < stop; e += lanes) {
                if (!is_masked(masked, p, x.indices[e])) {
                    table.add(x.indices[e], x.weights[e]);
                }
            }
            __syncwarp();
            for (std::int64_t j = 0; j < n; ++j) {
                const std::int32_t other = pools.values[first + j];
                if (other < own || (other == own && j <= i)) {
                    continue;  // the whole warp
                }
                const std::int64_t other_end = x.offset(other + 1);
                float sum = 0.0f;
                for (std::int64_t e = x.offset(other) + lane; e < other_end; e += lanes) {
                    const float held = table.weight_of(x.indices[e]);
                    sum += held >= 0.0f ? share(weight, held, x.weights[e]) : 0.0f;
                }
                sum = warp_sum(sum);
                if (lane == 0) {
                    sum += more ? matrix[i * n + j] : 0.0f;
                    matrix[i * n + j] = sum;
                    matrix[j * n + i] = sum;
                }
            }
            begin = stop;
            more = true;
        } while (begin < end);
        if (lane == 0) {
            matrix[i * n + i] = -1.0f;
        }
    });
}

// The number of weights in the row above the bar.
__device__ std::int64_t count_above(const MatrixRow& row, float bar) {
    int count = 0;
    for (std::int64_t j = lane_of_thread(); j < row.size; j += lanes) {
        count += row.weights[j] > bar ? 1 : 0;
    }
    return warp_sum(count);
}

__global__ void count_kernel(PoolArrays pools, Matrices matrices, Selection selection, std::int64_t* indptr,
                             const std::int32_t* status) {
    if (*status != 0) {
        return;
    }
    each_row(pools.offsets, pools.lists, [&](std::int64_t p, std::int64_t first, std::int64_t n, std::int64_t i) {
        const MatrixRow row{matrices.weights + matrices.begin[p] + i * n, n, first + i};
        const std::int64_t count = count_above(row, selection.threshold);
        if (lane_of_thread() == 0) {
            indptr[row.node + 1] = selection.top_k > 0 && selection.top_k < count ? selection.top_k : count;
        }
    });
}

// The k-th strongest weight of a row that has more than k above a bar of at least 0: bit by bit from the highest.
// The bits of such weights are ordered as the weights are.
__device__ float strongest(const MatrixRow& row, std::int64_t k) {
    int bits = 0;
    for (int bit = 1 << 30; bit > 0; bit >>= 1) {
        int count = 0;
        for (std::int64_t j = lane_of_thread(); j < row.size; j += lanes) {
            count += row.weights[j] > 0.0f && __float_as_int(row.weights[j]) >= (bits | bit) ? 1 : 0;
        }
        bits |= warp_sum(count) >= k ? bit : 0;
    }
    return __int_as_float(bits);
}

// Writes the edges above the bar, and the first `ties` that are equal to it.
__device__ void write_row(const MatrixRow& row, float bar, std::int64_t ties, std::int64_t at,
                          const Edges& edges) {
    const unsigned before = (1U << lane_of_thread()) - 1;
    for (std::int64_t first = 0; first < row.size; first += lanes) {
        const std::int64_t j = first + lane_of_thread();
        const float weight = j < row.size ? row.weights[j] : -1.0f;
        const unsigned equal = __ballot_sync(all_lanes, ties > 0 && weight == bar);
        const bool kept = weight > bar || (weight == bar && __popc(equal & before) < ties);
        const unsigned all = __ballot_sync(all_lanes, kept);
        const std::int64_t place = at + __popc(all & before);
        if (kept && place >= 0 && place < edges.room) {
            edges.indices[place] = static_cast<std::int32_t>(j);
            edges.weights[place] = weight;
        }
        at += __popc(all);
        ties -= ties < __popc(equal) ? ties : __popc(equal);
    }
}

__global__ void fill_kernel(PoolArrays pools, Matrices matrices, Selection selection, const std::int64_t* indptr,
                            Edges edges, const std::int32_t* status) {
    if (*status != 0) {
        return;
    }
    each_row(pools.offsets, pools.lists, [&](std::int64_t p, std::int64_t first, std::int64_t n, std::int64_t i) {
        const MatrixRow row{matrices.weights + matrices.begin[p] + i * n, n, first + i};
        float bar = selection.threshold;
        std::int64_t ties = 0;
        if (selection.top_k > 0 && count_above(row, bar) > selection.top_k) {
            bar = strongest(row, selection.top_k);
            ties = selection.top_k - count_above(row, bar);
        }
        write_row(row, bar, ties, indptr[row.node], edges);
    });
}

Matrices lay_out(Arena& arena, std::size_t pools, std::size_t nodes, const Bounds& bounds) {
    return {arena.take<std::int64_t>(pools + 1), arena.take<float>(static_cast<std::size_t>(bounds.pairs)),
            arena.take<std::int64_t>(scan_memory(std::max(pools, nodes) + 1))};
}

dim3 grid_for(const PoolArrays& pools, const Bounds& bounds) {
    const auto parts = (static_cast<std::size_t>(bounds.documents) + warps - 1) / warps;
    return {blocks_for(static_cast<std::size_t>(pools.lists), 1),
            static_cast<unsigned>(std::clamp<std::size_t>(parts, 1, most_parts)), 1};
}

Selection selection_of(const EvidenceGraphOptions& options) {
    if (options.function != nullptr) {
        throw Error("weight: a function of the caller's cannot run on a GPU");
    }
    if (options.idf != Idf::corpus) {
        throw Error("idf: 'pool' is not available on a GPU");
    }
    if (!(options.threshold >= 0.0f) || std::isinf(options.threshold)) {
        throw Error("threshold: must be a finite number of at least 0");
    }
    if (options.top_k && *options.top_k < 1) {
        throw Error("top_k: must be at least 1");
    }
    return {options.threshold, options.top_k.value_or(0)};
}

// The checked batch, with its matrices in the workspace.
struct Batch {
    PoolArrays pools;
    Matrices matrices;
    Selection selection;
    dim3 grid;
};

Batch batch_of(const Pools& pools, const EvidenceGraphOptions& options, const Bounds& bounds,
               std::span<const std::int64_t> indptr, const Queue& queue) {
    const PoolArrays arrays = pool_arrays(pools);
    const Selection selection = selection_of(options);
    constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
    if (bounds.documents < 0 || bounds.pairs < 0 || bounds.documents > most || arrays.size > most) {
        throw Error("pool_offsets: a GPU takes no more than 31 bits can count");
    }
    if (indptr.size() != pools.values.size() + 1) {
        throw Error("indptr: must hold one more number than there are nodes");
    }
    check_queue(queue, evidence_graph_workspace(pools.size(), pools.values.size(), bounds));
    Arena arena(queue.workspace.data());
    return {arrays, lay_out(arena, pools.size(), pools.values.size(), bounds), selection,
            grid_for(arrays, bounds)};
}

}  // namespace

std::size_t evidence_graph_workspace(std::size_t pools, std::size_t nodes, const Bounds& bounds) {
    Arena arena;
    lay_out(arena, pools, nodes, bounds);
    return arena.used();
}

void evidence_graph_count(const Forward& x, const Pools& pools, const Ragged<std::int32_t>& masked,
                          const EvidenceGraphOptions& options, const Bounds& bounds,
                          std::span<std::int64_t> indptr, const Queue& queue) {
    const ForwardArrays forward = forward_arrays(x);
    const Batch batch = batch_of(pools, options, bounds, indptr, queue);
    const cudaStream_t stream = stream_of(queue);
    RaggedArrays<std::int32_t> masks{nullptr, nullptr, 0, 0};
    if (!masked.offsets.empty()) {
        masks = ragged_arrays(masked, "mask_terms");
        if (masks.lists != batch.pools.lists) {
            throw Error("mask_terms: " + std::to_string(masks.lists) + " lists for " +
                        std::to_string(batch.pools.lists) + " pools");
        }
        const auto items = static_cast<std::size_t>(std::max(masks.lists, masks.size));
        if (items > 0) {
            GPU_LAUNCH(check_masked_kernel, blocks_for(items, threads), threads, 0, stream, masks, forward.terms,
                       queue.status);
        }
    }
    Bounds checked = bounds;
    checked.entries = std::numeric_limits<std::int64_t>::max();  // no bound is needed here
    check_pools(forward, batch.pools, checked, queue);
    const auto lists = static_cast<std::size_t>(batch.pools.lists);
    GPU_LAUNCH(square_kernel, blocks_for(lists + 1, threads), threads, 0, stream, batch.pools,
               batch.matrices.begin, queue.status);
    scan(batch.matrices.begin, lists + 1, batch.matrices.scan, queue.status, stream);
    check_total(batch.matrices.begin + lists, bounds.pairs, queue);
    if (lists > 0) {
        GPU_LAUNCH(weigh_kernel, batch.grid, threads, 0, stream, forward, batch.pools, masks, options.weight,
                   batch.matrices, queue.status);
    }
    cudaMemsetAsync(indptr.data(), 0, sizeof(std::int64_t), stream);
    if (lists > 0) {
        GPU_LAUNCH(count_kernel, batch.grid, threads, 0, stream, batch.pools, batch.matrices, batch.selection,
                   indptr.data(), queue.status);
    }
    scan(indptr.data(), indptr.size(), batch.matrices.scan, queue.status, stream);
    check_launch("evidence_graph");
}

void evidence_graph_fill(const Pools& pools, const EvidenceGraphOptions& options, const Bounds& bounds,
                         std::span<const std::int64_t> indptr, std::span<std::int32_t> indices,
                         std::span<float> weights, const Queue& queue) {
    const Batch batch = batch_of(pools, options, bounds, indptr, queue);
    if (indices.size() != weights.size()) {
        throw Error("weights: must have as much room as indices");
    }
    const Edges edges{indices.data(), weights.data(), static_cast<std::int64_t>(indices.size())};
    const cudaStream_t stream = stream_of(queue);
    check_total(indptr.data() + (indptr.size() - 1), edges.room, queue);
    if (batch.pools.lists > 0) {
        GPU_LAUNCH(fill_kernel, batch.grid, threads, 0, stream, batch.pools, batch.matrices, batch.selection,
                   indptr.data(), edges, queue.status);
    }
    check_launch("evidence_graph");
}

}  // namespace pyfast::cuda
