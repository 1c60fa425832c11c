#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "pyfast/cuda/evidence_graph.hpp"
#include "pyfast/error.hpp"
#include "scan.cuh"
#include "term_table.cuh"

namespace pyfast::cuda {

namespace {

constexpr int threads = 128;
constexpr int warps = threads / lanes;
constexpr std::size_t most_parts = 32'768;  // the most parts of a pool: a grid's second dimension
constexpr int small_pool = 512;             // up to this size, the sums of a row are in shared memory
constexpr int tiny_pool = 64;               // two documents for each lane

// A document of a pool that has a term, and its weight.
struct Posting {
    std::int32_t document;  // its number in the pool
    float weight;
};

// Where the postings of a term are, counted from the pool's first posting. In a pool of up to 64 documents, the
// bits of `low` and `high` say which documents have the term, and only weights are stored, by document.
struct alignas(16) List {
    std::int32_t begin;
    std::int32_t count;
    unsigned low;
    unsigned high;

    // The place of the weight of document `lane`, or lane + 32.
    [[nodiscard]] __device__ int place(int lane, bool upper) const {
        const unsigned before = (1U << lane) - 1;
        return begin + (upper ? __popc(low) + __popc(high & before) : __popc(low & before));
    }
    [[nodiscard]] __device__ bool has(int lane, bool upper) const {
        return ((upper ? high : low) >> lane & 1) != 0;
    }
};

// The entries of the pools by term.
struct Postings {
    std::int64_t* begin;  // [N + 1] the first entry of each node
    List* lists;          // for each entry: the list of its term
    Posting* postings;    // a pool's postings begin where its entries do
};

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

__global__ void length_kernel(ForwardArrays x, PoolArrays pools, std::int64_t* begin, const std::int32_t* status) {
    if (*status != 0) {
        return;
    }
    for (std::int64_t v = thread_of_grid(); v <= pools.size; v += threads_of_grid()) {
        begin[v] = 0;
        if (v > 0) {
            const std::int32_t document = pools.values[v - 1];
            begin[v] = x.offset(document + 1) - x.offset(document);
        }
    }
}

// Sets begins[slot] to where the postings of the slot's term start, the first at `start`. Returns where those of
// the next part start. Called by all threads of a block, which handle equally many slots each.
template <class Count>
__device__ int place_lists(const TermTable& table, std::int32_t* begins, int start, int* parts,
                           const Count& count) {
    const int each = table.slots / static_cast<int>(blockDim.x);
    const int first = static_cast<int>(threadIdx.x) * each;
    int sum = 0;
    for (int slot = first; slot < first + each; ++slot) {
        sum += count(slot);
    }
    int before = sum;
    for (int distance = 1; distance < lanes; distance *= 2) {
        const int other = __shfl_up_sync(all_lanes, before, distance);
        before += lane_of_thread() >= distance ? other : 0;
    }
    if (lane_of_thread() == lanes - 1) {
        parts[warp_of_thread()] = before;
    }
    __syncthreads();
    before += start - sum;
    int end = start;
    for (int warp = 0; warp < static_cast<int>(blockDim.x) / lanes; ++warp) {
        before += warp < warp_of_thread() ? parts[warp] : 0;
        end += parts[warp];
    }
    for (int slot = first; slot < first + each; ++slot) {
        begins[slot] = before;
        before += count(slot);
    }
    __syncthreads();
    return end;
}

// One block for each pool. The order of a list's postings does not matter.
__global__ void postings_kernel(ForwardArrays x, PoolArrays pools, RaggedArrays<std::int32_t> masked, int slots,
                                Postings of, std::int32_t* status) {
    if (*status != 0) {
        return;
    }
    GPU_DYN_SHARED(unsigned char, shared);
    auto* const arrays = reinterpret_cast<std::int32_t*>(shared + TableSize::parts_size);
    TermTable table{arrays, arrays + slots, arrays - 4, slots};
    std::int32_t* const begins = arrays + 2 * slots;
    std::int32_t* const placed = arrays + 3 * slots;
    for (std::int64_t p = blockIdx.x; p < pools.lists; p += gridDim.x) {
        const std::int64_t first = pools.offsets[p];
        const std::int64_t last = pools.offsets[p + 1];
        if (of.begin[last] - of.begin[first] > 0x7FFFFFFF) {
            report(status, Fault::bounds);
            continue;  // for the whole block
        }
        const bool tiny = last - first <= tiny_pool;
        Posting* const postings = of.postings + of.begin[first];
        auto* const weights = reinterpret_cast<float*>(postings);
        const auto count = [&](int slot) {  // in a tiny pool, `counts` and `placed` are bits
            return tiny ? __popc(static_cast<unsigned>(table.counts[slot])) +
                              __popc(static_cast<unsigned>(placed[slot]))
                        : table.counts[slot];
        };
        int start = 0;
        table.cuts = 0;
        for (table.part = 0; table.part < 1 << table.cuts; ++table.part) {
            for (int slot = static_cast<int>(threadIdx.x); slot < slots; slot += static_cast<int>(blockDim.x)) {
                placed[slot] = 0;
            }
            table.clear();
            const bool fits = table.fill(x, pools, first, last, [&](const Chunk& chunk) {
                bool fresh = false;
                if (table.has_part_of(chunk.term) && !is_masked(masked, p, chunk.term)) {
                    const int slot = table.add(chunk.term, fresh);
                    const auto document = static_cast<int>(chunk.v - first);
                    if (tiny) {
                        atomicOr((document < lanes ? table.counts : placed) + slot,
                                 static_cast<std::int32_t>(1U << document % lanes));
                    } else {
                        atomicAdd(table.counts + slot, 1);
                    }
                }
                return fresh;
            });
            if (!fits) {
                ++table.cuts;
                table.part = -1;
                start = 0;
                continue;
            }
            start = place_lists(table, begins, start, reinterpret_cast<int*>(shared), count);
            Walk(x, pools, first, last).each([&](const Chunk& chunk) {
                if (!chunk.there() || !table.has_part_of(chunk.term)) {
                    return;
                }
                List list{0, 0, 0, 0};
                if (!is_masked(masked, p, chunk.term)) {
                    const int slot = table.find(chunk.term);
                    const auto document = static_cast<int>(chunk.v - first);
                    list.begin = begins[slot];
                    list.count = count(slot);
                    if (tiny) {
                        list.low = static_cast<unsigned>(table.counts[slot]);
                        list.high = static_cast<unsigned>(placed[slot]);
                        weights[list.place(document % lanes, document >= lanes)] = chunk.weight;
                    } else {
                        postings[list.begin + atomicAdd(placed + slot, 1)] = {document, chunk.weight};
                    }
                }
                const std::int64_t row = x.offset(pools.values[chunk.v]);
                of.lists[of.begin[chunk.v] + (chunk.e - row) + lane_of_thread()] = list;
            });
            __syncthreads();
        }
    }
}

// The same as add_row, for a tiny pool: each lane has two documents, and keeps their sums in registers. `room` is
// the warp's part of shared memory, for the lists and weights of 32 entries at a time.
__device__ void add_tiny_row(const ForwardArrays& x, std::int32_t document, EdgeWeight weight, const List* lists,
                             const float* weights, float* room, float (&sums)[2]) {
    const std::int64_t begin = x.offset(document);
    const auto count = static_cast<int>(x.offset(document + 1) - begin);
    const int lane = lane_of_thread();
    auto* const near = reinterpret_cast<List*>(room);
    float* const own = room + lanes * (sizeof(List) / sizeof(float));
    for (int tile = 0; tile < count; tile += lanes) {
        __syncwarp();  // all lanes have read the previous tile
        if (tile + lane < count) {
            near[lane] = lists[tile + lane];
            own[lane] = x.weights[begin + tile + lane];
        }
        __syncwarp();
        const int held = count - tile < lanes ? count - tile : lanes;
#pragma unroll 4
        for (int e = 0; e < held; ++e) {
            const List list = near[e];
#pragma unroll
            for (int k = 0; k < 2; ++k) {
                const bool has = list.has(lane, k > 0);
                const float other = has ? weights[list.place(lane, k > 0)] : 0.0f;
                sums[k] += has ? share(weight, own[e], other) : 0.0f;
            }
        }
    }
}

// Adds to sums[j], for each document j of the pool, the weight that it shares with the document of the row. It
// goes term by term, and the lanes divide a term's postings. So a weight is the same sum in both directions, and a
// document that occurs twice in a pool gets equal weights.
__device__ void add_row(const ForwardArrays& x, std::int32_t document, EdgeWeight weight, const List* lists,
                        const Posting* postings, float* sums) {
    const std::int64_t begin = x.offset(document);
    const std::int64_t count = x.offset(document + 1) - begin;
    const int lane = lane_of_thread();
    for (std::int64_t tile = 0; tile < count; tile += lanes) {
        const bool there = tile + lane < count;
        const List list = there ? lists[tile + lane] : List{0, 0, 0, 0};
        const float own = there ? x.weights[begin + tile + lane] : 0.0f;
        unsigned left = __ballot_sync(all_lanes, list.count > 1);  // only this document has the others
        int next = __ffs(static_cast<int>(left)) - 1;
        const auto from = [&](int k) {
            const int first = __shfl_sync(all_lanes, list.begin, k);
            const int size = __shfl_sync(all_lanes, list.count, k);
            return List{first, size, 0, 0};
        };
        List ahead = left != 0 ? from(next) : List{0, 0, 0, 0};
        Posting posting = lane < ahead.count ? postings[ahead.begin + lane] : Posting{0, 0.0f};
        while (left != 0) {
            const List now = ahead;
            const Posting first = posting;
            const float mine = __shfl_sync(all_lanes, own, next);
            left &= left - 1;
            if (left != 0) {  // the next postings are read while these are added
                next = __ffs(static_cast<int>(left)) - 1;
                ahead = from(next);
                posting = lane < ahead.count ? postings[ahead.begin + lane] : Posting{0, 0.0f};
            }
            if (lane < now.count) {
                sums[first.document] += share(weight, mine, first.weight);
            }
            for (int q = lane + lanes; q < now.count; q += lanes) {
                const Posting other = postings[now.begin + q];
                sums[other.document] += share(weight, mine, other.weight);
            }
            __syncwarp();
        }
    }
}

// Computes the rows of the matrices, and counts their edges.
__global__ void weigh_kernel(ForwardArrays x, PoolArrays pools, Postings of, EdgeWeight weight, Matrices matrices,
                             Selection selection, std::int64_t* indptr, const std::int32_t* status) {
    if (*status != 0) {
        return;
    }
    GPU_SHARED(float4, aligned, warps * small_pool / 4);
    auto* const small = reinterpret_cast<float*>(&aligned[0]);
    each_row(pools.offsets, pools.lists, [&](std::int64_t p, std::int64_t first, std::int64_t n, std::int64_t i) {
        float* const row = matrices.weights + matrices.begin[p] + i * n;
        const std::int32_t document = pools.values[first + i];
        const List* const lists = of.lists + of.begin[first + i];
        const Posting* const postings = of.postings + of.begin[first];
        int count = 0;
        const auto keep = [&](std::int64_t j, float sum) {
            const float found = j == i ? -1.0f : sum;
            count += found > selection.threshold ? 1 : 0;
            row[j] = found;
        };
        if (n <= tiny_pool) {
            float sums[2] = {};
            add_tiny_row(x, document, weight, lists, reinterpret_cast<const float*>(postings),
                         small + warp_of_thread() * small_pool, sums);
#pragma unroll
            for (int k = 0; k < 2; ++k) {
                if (const int j = lane_of_thread() + k * lanes; j < n) {
                    keep(j, sums[k]);
                }
            }
        } else {
            float* const sums = n <= small_pool ? small + warp_of_thread() * small_pool : row;
            for (std::int64_t j = lane_of_thread(); j < n; j += lanes) {
                sums[j] = 0.0f;
            }
            __syncwarp();
            add_row(x, document, weight, lists, postings, sums);
            for (std::int64_t j = lane_of_thread(); j < n; j += lanes) {
                keep(j, sums[j]);
            }
        }
        const std::int64_t all = warp_sum(count);
        if (lane_of_thread() == 0) {
            indptr[first + i + 1] = selection.top_k > 0 && selection.top_k < all ? selection.top_k : all;
        }
        __syncwarp();  // the next row uses the same sums
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

// The k-th strongest weight of a row that has more than k above a bar of at least 0, found bit by bit from the
// highest. The bits of such weights are ordered as the weights are.
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

struct Layout {
    Matrices matrices;
    Postings postings;
};

Layout lay_out(Arena& arena, std::size_t pools, std::size_t nodes, const Bounds& bounds) {
    const auto entries = static_cast<std::size_t>(bounds.entries);
    return {{arena.take<std::int64_t>(pools + 1), arena.take<float>(static_cast<std::size_t>(bounds.pairs)),
             arena.take<std::int64_t>(scan_memory(std::max(pools, nodes) + 1))},
            {arena.take<std::int64_t>(nodes + 1), arena.take<List>(entries), arena.take<Posting>(entries)}};
}

dim3 grid_for(const PoolArrays& pools, const Bounds& bounds) {
    const auto parts = (static_cast<std::size_t>(bounds.documents) + warps - 1) / warps;
    return {blocks_for(static_cast<std::size_t>(pools.lists), 1),
            static_cast<unsigned>(std::clamp<std::size_t>(parts, 1, most_parts)), 1};
}

Selection selection_of(const EvidenceGraphOptions& options) {
    if (options.function != nullptr) {
        throw Error("weight: a function cannot run on a GPU");
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
    Layout layout;
    Selection selection;
    dim3 grid;
};

Batch batch_of(const Pools& pools, const EvidenceGraphOptions& options, const Bounds& bounds,
               std::span<const std::int64_t> indptr, const Queue& queue) {
    const PoolArrays arrays = pool_arrays(pools);
    const Selection selection = selection_of(options);
    constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
    if (std::min({bounds.documents, bounds.pairs, bounds.entries}) < 0 || bounds.documents > most ||
        arrays.size > most) {
        throw Error("pool_offsets: a GPU supports at most 2147483647 nodes");
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
            throw Error("mask_terms: expected one list for each pool (" + std::to_string(batch.pools.lists) +
                        "), got " + std::to_string(masks.lists));
        }
        const auto items = static_cast<std::size_t>(std::max(masks.lists, masks.size));
        if (items > 0) {
            GPU_LAUNCH(check_masked_kernel, blocks_for(items, threads), threads, 0, stream, masks, forward.terms,
                       queue.status);
        }
    }
    check_pools(forward, batch.pools, bounds.documents, queue);
    const auto lists = static_cast<std::size_t>(batch.pools.lists);
    const auto nodes = static_cast<std::size_t>(batch.pools.size);
    const Matrices& matrices = batch.layout.matrices;
    const Postings& postings = batch.layout.postings;
    GPU_LAUNCH(square_kernel, blocks_for(lists + 1, threads), threads, 0, stream, batch.pools, matrices.begin,
               queue.status);
    scan(matrices.begin, lists + 1, matrices.scan, queue.status, stream);
    check_total(matrices.begin + lists, bounds.pairs, queue);
    GPU_LAUNCH(length_kernel, blocks_for(nodes + 1, threads), threads, 0, stream, forward, batch.pools,
               postings.begin, queue.status);
    scan(postings.begin, nodes + 1, matrices.scan, queue.status, stream);
    check_total(postings.begin + nodes, bounds.entries, queue);
    cudaMemsetAsync(indptr.data(), 0, sizeof(std::int64_t), stream);
    if (lists > 0) {
        const TableSize size(forward, batch.pools);
        cudaFuncSetAttribute(
            postings_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
            static_cast<int>(TableSize::parts_size + TableSize::most_slots * TableSize::slot_size));
        GPU_LAUNCH(postings_kernel, blocks_for(lists, 1), size.threads, size.bytes(), stream, forward, batch.pools,
                   masks, size.slots, postings, queue.status);
        GPU_LAUNCH(weigh_kernel, batch.grid, threads, 0, stream, forward, batch.pools, postings, options.weight,
                   matrices, batch.selection, indptr.data(), queue.status);
    }
    scan(indptr.data(), indptr.size(), matrices.scan, queue.status, stream);
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
        GPU_LAUNCH(fill_kernel, batch.grid, threads, 0, stream, batch.pools, batch.layout.matrices,
                   batch.selection, indptr.data(), edges, queue.status);
    }
    check_launch("evidence_graph");
}

}  // namespace pyfast::cuda
