#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "pools.cuh"
#include "pyfast/cuda/pagerank.hpp"
#include "pyfast/error.hpp"

namespace pyfast::cuda {

namespace {

constexpr int check_threads = 128;
constexpr int most_threads = 1024;  // of a pool's block
// a step that changes the ranks by at most this only rounds
constexpr double rounding = 64 * std::numeric_limits<double>::epsilon();

struct GraphArrays {
    RaggedArrays<std::int32_t> pools;  // offsets only
    RaggedArrays<std::int32_t> rows;   // the indices
    const float* weights;
};

// The edges of the pools by target: node v has incoming[begin[v] .. end[v]), by source. The edges of a pool take
// the same space as in its rows.
struct Incoming {
    std::int64_t* begin;
    std::int64_t* end;
    std::int32_t* sources;
    float* weights;
    float* cells;  // room for matrices: two cells for each edge
};

// The vectors of one pool, and its matrix.
struct Vectors {
    double* rank;
    double* pushed;  // what an edge of weight 1 carries
    double* totals;  // the sum of the weights that leave a node
    double* restart;
    double* sums;   // [threads] parts of what reaches a node
    double* parts;  // [warps]
    float* matrix;  // [n, n] by source and target; null: the edges are sorted by target
};

struct Settings {
    double damping;
    double tolerance;
    std::int64_t most;
};

// Whether the edges of node v are in order. There may be room for more edges behind the last.
[[nodiscard]] __device__ inline bool row_holds(const RaggedArrays<std::int32_t>& rows, std::int64_t v) {
    const std::int64_t begin = rows.offsets[v];
    const std::int64_t end = rows.offsets[v + 1];
    return begin >= 0 && begin <= end && end <= rows.size && (v > 0 || begin == 0);
}

// Pools along the grid's first dimension, parts of a pool along the second.
__global__ void check_graphs_kernel(GraphArrays graphs, std::int32_t* status) {
    const std::int64_t warps = blockDim.x / lanes;
    for (std::int64_t p = blockIdx.x; p < graphs.pools.lists; p += gridDim.x) {
        if (!offsets_hold(graphs.pools, p)) {
            report(status, Fault::offsets);
            continue;
        }
        const std::int64_t first = graphs.pools.offsets[p];
        const std::int64_t last = graphs.pools.offsets[p + 1];
        for (std::int64_t v = first + blockIdx.y * warps + warp_of_thread(); v < last; v += gridDim.y * warps) {
            if (!row_holds(graphs.rows, v)) {
                report(status, Fault::offsets);
                continue;
            }
            const std::int64_t begin = graphs.rows.offsets[v];
            for (std::int64_t e = begin + lane_of_thread(); e < graphs.rows.offsets[v + 1]; e += lanes) {
                const std::int32_t index = graphs.rows.values[e];
                const float weight = graphs.weights[e];
                if (index < 0 || index >= last - first || (e > begin && index <= graphs.rows.values[e - 1])) {
                    report(status, Fault::edges);
                }
                if (!(weight >= 0.0f && isfinite(weight))) {
                    report(status, Fault::edge_weights);
                }
            }
        }
    }
}

__global__ void check_shares_kernel(const float* shares, std::int64_t n, std::int32_t* status) {
    for (std::int64_t v = thread_of_grid(); v < n; v += threads_of_grid()) {
        if (!(shares[v] >= 0.0f && isfinite(shares[v]))) {
            report(status, Fault::scores);
        }
    }
}

// begin[first .. last): where the edges to each node start, from their counts in `end`. The first warp computes
// it.
__device__ void place_targets(const Incoming& incoming, std::int64_t first, std::int64_t last, std::int64_t base) {
    if (warp_of_thread() != 0) {
        return;  // the whole warp leaves; the rest is for the first warp
    }
    const int lane = lane_of_thread();
    for (std::int64_t tile = first; tile < last; tile += lanes) {
        const std::int64_t count = tile + lane < last ? incoming.end[tile + lane] : 0;
        std::int64_t sum = count;
        for (int distance = 1; distance < lanes; distance *= 2) {
            const std::int64_t other = __shfl_up_sync(all_lanes, sum, distance);
            sum += lane >= distance ? other : 0;
        }
        if (tile + lane < last) {
            incoming.begin[tile + lane] = base + sum - count;
            incoming.end[tile + lane] = base + sum - count;
        }
        base += __shfl_sync(all_lanes, sum, lanes - 1);
    }
}

// Sorts the edges of the pool first .. last by target.
__device__ void turn(const GraphArrays& graphs, const Incoming& incoming, std::int64_t first, std::int64_t last) {
    const std::int64_t* const rows = graphs.rows.offsets;
    for (std::int64_t v = first + threadIdx.x; v < last; v += blockDim.x) {
        incoming.end[v] = 0;
    }
    __syncthreads();
    for (std::int64_t e = rows[first] + threadIdx.x; e < rows[last]; e += blockDim.x) {
        atomicAdd(reinterpret_cast<unsigned long long*>(incoming.end + first + graphs.rows.values[e]), 1ULL);
    }
    __syncthreads();
    place_targets(incoming, first, last, rows[first]);
    __syncthreads();
    for (std::int64_t u = first; u < last; ++u) {
        for (std::int64_t e = rows[u] + threadIdx.x; e < rows[u + 1]; e += blockDim.x) {
            const std::int64_t place = incoming.end[first + graphs.rows.values[e]]++;
            incoming.sources[place] = static_cast<std::int32_t>(u - first);
            incoming.weights[place] = graphs.weights[e];
        }
        __syncthreads();  // a target occurs once in a row, so its sources come row by row
    }
}

// The totals of the rows, the matrix if there is one, and the distribution where the walk restarts and begins.
__device__ void begin_walk(const GraphArrays& graphs, const float* shares, std::int64_t first, std::int64_t n,
                           const Vectors& vectors) {
    for (std::int64_t v = warp_of_thread(); v < n; v += blockDim.x / lanes) {
        float* const row = vectors.matrix == nullptr ? nullptr : vectors.matrix + v * n;
        for (std::int64_t cell = lane_of_thread(); row != nullptr && cell < n; cell += lanes) {
            row[cell] = 0.0f;
        }
        __syncwarp();
        double total = 0.0;
        for (std::int64_t e = graphs.rows.offsets[first + v] + lane_of_thread();
             e < graphs.rows.offsets[first + v + 1]; e += lanes) {
            const float weight = graphs.weights[e];
            total += static_cast<double>(weight);
            if (row != nullptr) {
                row[graphs.rows.values[e]] = weight;
            }
        }
        total = warp_sum(total);
        if (lane_of_thread() == 0) {
            vectors.totals[v] = total;
        }
    }
    double total = 0.0;
    for (std::int64_t v = threadIdx.x; shares != nullptr && v < n; v += blockDim.x) {
        total += static_cast<double>(shares[first + v]);
    }
    total = block_sum(total, vectors.parts);
    for (std::int64_t v = threadIdx.x; v < n; v += blockDim.x) {
        vectors.restart[v] =
            total > 0.0 ? static_cast<double>(shares[first + v]) / total : 1.0 / static_cast<double>(n);
        vectors.rank[v] = vectors.restart[v];
    }
    __syncthreads();
}

// What reaches node v, from the sources u = slice, slice + slices, ...
__device__ double reaches(const float* matrix, const double* pushed, int n, int v, int slice, int slices) {
    constexpr int together = 8;
    double sums[4] = {};
    int u = slice;
    for (; u + (together - 1) * slices < n; u += together * slices) {
        float weights[together];
#pragma unroll
        for (int k = 0; k < together; ++k) {
            weights[k] = matrix[static_cast<std::int64_t>(u + k * slices) * n + v];
        }
#pragma unroll
        for (int k = 0; k < together; ++k) {
            sums[k % 4] = fma(pushed[u + k * slices], static_cast<double>(weights[k]), sums[k % 4]);
        }
    }
    for (; u < n; u += slices) {
        sums[0] = fma(pushed[u], static_cast<double>(matrix[static_cast<std::int64_t>(u) * n + v]), sums[0]);
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// One step. Returns the sum of the changes of all ranks.
__device__ double step(const Incoming& incoming, std::int64_t first, std::int64_t n, const Vectors& vectors,
                       double damping) {
    double stuck = 0.0;
    for (std::int64_t v = threadIdx.x; v < n; v += blockDim.x) {
        const bool leaves = vectors.totals[v] > 0.0;
        stuck += leaves ? 0.0 : vectors.rank[v];
        vectors.pushed[v] = leaves ? damping * vectors.rank[v] / vectors.totals[v] : 0.0;
    }
    stuck = block_sum(stuck, vectors.parts);
    const double share = 1.0 - damping + damping * stuck;
    double change = 0.0;
    const auto arrive = [&](std::int64_t v, double sum) {
        const double after = sum + share * vectors.restart[v];
        change += fabs(after - vectors.rank[v]);
        vectors.rank[v] = after;
    };
    const bool dense = vectors.matrix != nullptr;
    const auto sum_of = [&](std::int64_t v, std::int64_t slice, std::int64_t slices) {
        return reaches(vectors.matrix, vectors.pushed, static_cast<int>(n), static_cast<int>(v),
                       static_cast<int>(slice), static_cast<int>(slices));
    };
    const std::int64_t columns = (n + lanes - 1) / lanes * lanes;
    const std::int64_t slices = blockDim.x / columns;
    if (dense && slices > 1) {  // several warps for a node: each adds up a slice of its sources
        const std::int64_t slice = threadIdx.x / columns;
        const std::int64_t v = threadIdx.x % columns;
        vectors.sums[threadIdx.x] = slice < slices && v < n ? sum_of(v, slice, slices) : 0.0;
        __syncthreads();
        if (threadIdx.x < n) {
            double sum = 0.0;
            for (std::int64_t k = 0; k < slices; ++k) {
                sum += vectors.sums[k * columns + threadIdx.x];
            }
            arrive(threadIdx.x, sum);
        }
    } else if (dense) {
        for (std::int64_t v = threadIdx.x; v < n; v += blockDim.x) {
            arrive(v, sum_of(v, 0, 1));
        }
    } else {
        for (std::int64_t v = warp_of_thread(); v < n; v += blockDim.x / lanes) {
            double sum = 0.0;
            for (std::int64_t e = incoming.begin[first + v] + lane_of_thread(); e < incoming.end[first + v];
                 e += lanes) {
                sum += vectors.pushed[incoming.sources[e]] * static_cast<double>(incoming.weights[e]);
            }
            sum = warp_sum(sum);
            if (lane_of_thread() == 0) {
                arrive(v, sum);
            }
        }
    }
    return block_sum(change, vectors.parts);
}

// One block for each pool. The matrix of a pool of up to `side` nodes is in shared memory. That of a larger one is
// in the workspace, if it has no more than two cells for each edge. `converged` is null, or has one entry for each
// pool.
__global__ void __launch_bounds__(most_threads, 1)
    pagerank_kernel(GraphArrays graphs, const float* shares, Settings settings, Incoming incoming, Vectors large,
                    int side, float* rank, std::uint8_t* converged, const std::int32_t* status) {
    if (*status != 0) {
        return;
    }
    GPU_DYN_SHARED(double, shared);
    double* const small = shared + blockDim.x + most_threads / lanes;
    for (std::int64_t p = blockIdx.x; p < graphs.pools.lists; p += gridDim.x) {
        const std::int64_t first = graphs.pools.offsets[p];
        const std::int64_t n = graphs.pools.offsets[p + 1] - first;
        const std::int64_t begin = graphs.rows.offsets[first];
        const bool fits = n <= side;
        const bool dense = fits || n * n <= 2 * (graphs.rows.offsets[first + n] - begin);
        const Vectors vectors{fits ? small : large.rank + first,
                              fits ? small + side : large.pushed + first,
                              fits ? small + 2 * side : large.totals + first,
                              fits ? small + 3 * side : large.restart + first,
                              shared,
                              shared + blockDim.x,
                              fits    ? reinterpret_cast<float*>(small + 4 * side)
                              : dense ? incoming.cells + 2 * begin
                                      : nullptr};
        if (!dense) {
            turn(graphs, incoming, first, first + n);
        }
        begin_walk(graphs, shares, first, n, vectors);
        double change = HUGE_VAL;
        bool ended = n == 0;
        for (std::int64_t steps = 0; steps < settings.most && !ended; ++steps) {
            const double before = change;
            change = step(incoming, first, n, vectors, settings.damping);
            // the whole block decides alike, because all threads have the same sum
            ended = change <= settings.tolerance || change >= before;
        }
        if (converged != nullptr && threadIdx.x == 0) {
            converged[p] = ended && (n == 0 || change <= fmax(settings.tolerance, rounding)) ? 1 : 0;
        }
        double sum = 0.0;
        for (std::int64_t v = threadIdx.x; v < n; v += blockDim.x) {
            sum += vectors.rank[v];
        }
        sum = block_sum(sum, vectors.parts);
        for (std::int64_t v = threadIdx.x; v < n; v += blockDim.x) {
            rank[first + v] = static_cast<float>(vectors.rank[v] / sum);
        }
        __syncthreads();  // the next pool uses the same vectors
    }
}

struct Layout {
    Incoming incoming;
    Vectors vectors;
};

Layout lay_out(Arena& arena, std::size_t nodes, std::size_t edges) {
    Layout out{};
    out.incoming = {arena.take<std::int64_t>(nodes), arena.take<std::int64_t>(nodes),
                    arena.take<std::int32_t>(edges), arena.take<float>(edges), arena.take<float>(2 * edges)};
    out.vectors = {arena.take<double>(nodes),
                   arena.take<double>(nodes),
                   arena.take<double>(nodes),
                   arena.take<double>(nodes),
                   nullptr,
                   nullptr,
                   nullptr};
    return out;
}

// The sizes of a batch's blocks, which follow from the average size of its pools.
struct BlockSize {
    unsigned threads;
    unsigned parts;  // into which the check divides a pool
    int side;        // of a matrix in shared memory

    explicit BlockSize(const GraphArrays& graphs) {
        const std::int64_t nodes = graphs.pools.lists > 0 ? graphs.pools.size / graphs.pools.lists : 0;
        threads = nodes <= 64 ? 128 : nodes <= 160 ? 512 : most_threads;
        parts = static_cast<unsigned>(std::clamp<std::int64_t>(nodes / 16, 1, 64));
        const std::int64_t most = nodes + nodes / 4;
        side = static_cast<int>(most > most_side ? 16 : std::max<std::int64_t>(most, 16));
    }
    [[nodiscard]] std::size_t bytes() const {
        const auto n = static_cast<std::size_t>(side);
        return (threads + most_threads / lanes + 4 * n) * sizeof(double) + n * n * sizeof(float);
    }
    static constexpr std::int64_t most_side = 140;  // 91 KB, which every GPU has
};

void check_options(const PageRankOptions& options) {
    if (!(options.damping >= 0.0 && options.damping < 1.0)) {
        throw Error("damping: must lie in [0, 1)");
    }
    if (!(options.tolerance >= 0.0)) {
        throw Error("tolerance: must be a number of at least 0");
    }
    if (options.max_iterations < 1) {
        throw Error("max_iterations: must be at least 1");
    }
}

GraphArrays graph_arrays(const Graphs& graphs) {
    if (graphs.indices.size() != graphs.weights.size()) {
        throw Error("g.weights: expected one for each index (" + std::to_string(graphs.indices.size()) +
                    "), got " + std::to_string(graphs.weights.size()));
    }
    GraphArrays arrays{ragged_arrays(Ragged<std::int32_t>{graphs.pool_offsets, {}}, "g.pool_offsets"),
                       ragged_arrays(Ragged<std::int32_t>{graphs.indptr, graphs.indices}, "g.indptr"),
                       graphs.weights.data()};
    arrays.pools.size = static_cast<std::int64_t>(graphs.nodes());
    if (arrays.pools.lists == 0 && arrays.pools.size > 0) {
        throw Error("g.pool_offsets: there are nodes, but no pools");
    }
    return arrays;
}

}  // namespace

std::size_t pagerank_workspace(std::size_t nodes, std::size_t edges) {
    Arena arena;
    lay_out(arena, nodes, edges);
    return arena.used();
}

void pagerank(const Graphs& graphs, std::span<const float> personalization, const PageRankOptions& options,
              std::span<float> rank, std::span<std::uint8_t> converged, const Queue& queue) {
    const GraphArrays arrays = graph_arrays(graphs);
    const std::size_t nodes = graphs.nodes();
    if (rank.size() != nodes) {
        throw Error("rank: must hold one number per node (" + std::to_string(nodes) + ")");
    }
    if (!personalization.empty() && personalization.size() != nodes) {
        throw Error("personalization: must hold one number per node (" + std::to_string(nodes) + "), got " +
                    std::to_string(personalization.size()));
    }
    if (!converged.empty() && converged.size() != graphs.size()) {
        throw Error("converged: must hold one number per pool (" + std::to_string(graphs.size()) + ")");
    }
    check_options(options);
    check_queue(queue, pagerank_workspace(nodes, graphs.indices.size()));
    if (arrays.pools.lists == 0) {
        return;
    }
    const cudaStream_t stream = stream_of(queue);
    const unsigned blocks = blocks_for(graphs.size(), 1);
    const BlockSize size(arrays);
    GPU_LAUNCH(check_graphs_kernel, dim3(blocks, size.parts), check_threads, 0, stream, arrays, queue.status);
    if (!personalization.empty()) {
        GPU_LAUNCH(check_shares_kernel, blocks_for(nodes, check_threads), check_threads, 0, stream,
                   personalization.data(), static_cast<std::int64_t>(nodes), queue.status);
    }
    Arena arena(queue.workspace.data());
    const Layout layout = lay_out(arena, nodes, graphs.indices.size());
    cudaFuncSetAttribute(pagerank_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(size.bytes()));
    GPU_LAUNCH(pagerank_kernel, blocks, size.threads, size.bytes(), stream, arrays,
               personalization.empty() ? nullptr : personalization.data(),
               Settings{options.damping, options.tolerance, options.max_iterations}, layout.incoming,
               layout.vectors, size.side, rank.data(), converged.empty() ? nullptr : converged.data(),
               queue.status);
    check_launch("pagerank");
}

}  // namespace pyfast::cuda
