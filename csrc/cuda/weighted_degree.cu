#include <algorithm>
#include <bit>
#include <limits>

#include "graph_rank.cuh"
#include "pools.cuh"
#include "pyfast/cuda/graph_rank.hpp"
#include "pyfast/cuda/weighted_degree.hpp"
#include "pyfast/error.hpp"

namespace pyfast::cuda {

namespace {

constexpr int threads = 256;
constexpr std::size_t shared_slots = 4096;  // 64 KB: three blocks fit a multiprocessor of an H100
// the number of blocks whose tables are in the workspace: two for each of its 132 multiprocessors
constexpr std::size_t blocks_at_once = 264;
constexpr std::size_t slot_size = sizeof(double) + 2 * sizeof(std::int32_t);
constexpr std::size_t parts_size = 256;  // for the sums of a block's warps

// The terms of a pool, with the data that the formula needs. For `sum`: the number of weights and their sum. For
// `dot`: the largest weight and the sum of the others. The sum of all weights except x is (largest - x) + the sum
// of the others. A difference of two sums would lose everything if x is most of them. Open addressing. There is a
// slot for each entry of the pool, so a new term always finds a free one.
struct Terms {
    double* sums;
    std::int32_t* terms;   // -1: a free slot
    std::int32_t* counts;  // for `sum`
    float* largest;        // for `dot`, in the same memory
    std::int64_t mask;     // slots - 1; the slots are a power of two

    __device__ Terms(void* memory, std::int64_t slots)
        : sums(static_cast<double*>(memory)),
          terms(reinterpret_cast<std::int32_t*>(sums + slots)),
          counts(terms + slots),
          largest(reinterpret_cast<float*>(terms + slots)),
          mask(slots - 1) {}
    [[nodiscard]] __device__ std::int64_t first_slot(std::int32_t term) const {
        return static_cast<std::int64_t>(static_cast<std::uint32_t>(term) * 0x9E3779B9U >> 8) & mask;
    }
    __device__ void clear() const {
        for (std::int64_t slot = threadIdx.x; slot <= mask; slot += blockDim.x) {
            sums[slot] = 0.0;
            terms[slot] = -1;
            counts[slot] = 0;  // the same bits as 0.0f
        }
    }
    // Two threads must not add the same term at the same time.
    __device__ void add(std::int32_t term, float weight, EdgeWeight kind) const {
        std::int64_t slot = first_slot(term);
        for (std::int32_t found = atomicCAS(terms + slot, -1, term); found != -1 && found != term;
             found = atomicCAS(terms + slot, -1, term)) {
            slot = (slot + 1) & mask;
        }
        if (kind == EdgeWeight::sum) {
            sums[slot] += static_cast<double>(weight);
            ++counts[slot];
        } else {
            sums[slot] += static_cast<double>(fminf(weight, largest[slot]));
            largest[slot] = fmaxf(weight, largest[slot]);
        }
    }
    // The slot of a term that is in the table.
    [[nodiscard]] __device__ std::int64_t find(std::int32_t term) const {
        std::int64_t slot = first_slot(term);
        while (terms[slot] != term) {
            slot = (slot + 1) & mask;
        }
        return slot;
    }
};

struct Rank {
    const float* semantic;  // null: no scores are computed
    float* score;
    float alpha;
};

__device__ void add_documents(const Terms& terms, const ForwardArrays& x, const PoolArrays& pools,
                              EdgeWeight weight, std::int64_t first, std::int64_t last) {
    for (std::int64_t v = first; v < last; ++v) {
        const std::int32_t document = pools.values[v];
        const std::int64_t end = x.offset(document + 1);
        for (std::int64_t e = x.offset(document) + threadIdx.x; e < end; e += blockDim.x) {
            terms.add(x.indices[e], x.weights[e], weight);
        }
        __syncthreads();  // a term occurs once in a document, so its sum grows document by document
    }
}

// Writes the degree of each document of the pool, one warp for each.
__device__ void sum_documents(const Terms& terms, const ForwardArrays& x, const PoolArrays& pools,
                              EdgeWeight weight, std::int64_t first, std::int64_t last, float* degree) {
    for (std::int64_t v = first + warp_of_thread(); v < last; v += blockDim.x / lanes) {
        const std::int32_t document = pools.values[v];
        const std::int64_t end = x.offset(document + 1);
        double total = 0.0;
        for (std::int64_t e = x.offset(document) + lane_of_thread(); e < end; e += lanes) {
            const std::int64_t slot = terms.find(x.indices[e]);
            const auto own = static_cast<double>(x.weights[e]);
            const double sum = terms.sums[slot];
            total += weight == EdgeWeight::sum ? (terms.counts[slot] - 2.0) * own + sum
                                               : own * ((static_cast<double>(terms.largest[slot]) - own) + sum);
        }
        total = warp_sum(total);
        if (lane_of_thread() == 0) {
            degree[v] = static_cast<float>(total);
        }
    }
}

// One block for each pool. `tables` has one table for each block. If it is null, tables are in shared memory.
__global__ void degree_kernel(ForwardArrays x, PoolArrays pools, EdgeWeight weight, std::int64_t slots,
                              unsigned char* tables, float* degree, Rank rank, const std::int32_t* status) {
    if (*status != 0) {
        return;
    }
    GPU_DYN_SHARED(unsigned char, shared);
    const Terms terms(tables != nullptr ? tables + blockIdx.x * static_cast<std::size_t>(slots) * slot_size
                                        : shared + parts_size,
                      slots);
    for (std::int64_t p = blockIdx.x; p < pools.lists; p += gridDim.x) {
        const std::int64_t first = pools.offsets[p];
        const std::int64_t last = pools.offsets[p + 1];
        terms.clear();
        __syncthreads();
        add_documents(terms, x, pools, weight, first, last);
        sum_documents(terms, x, pools, weight, first, last, degree);
        __syncthreads();
        if (rank.semantic != nullptr) {
            rank_pool(rank.semantic, degree, first, last, rank.alpha, rank.score,
                      reinterpret_cast<float*>(shared));
        }
    }
}

std::size_t slots_for(const Bounds& bounds) {
    return std::bit_ceil(static_cast<std::size_t>(std::max<std::int64_t>(bounds.entries, 1)));
}

void run(const Forward& x, const Pools& pools, EdgeWeight weight, const Bounds& bounds, std::span<float> degree,
         const Rank& rank, const Queue& queue) {
    const ForwardArrays forward = forward_arrays(x);
    const PoolArrays batch = pool_arrays(pools);
    check_queue(queue, weighted_degree_workspace(pools.size(), bounds));
    if (weight == EdgeWeight::min) {
        throw Error("weight: 'min' has no closed form on a GPU; add up the rows of evidence_graph");
    }
    if (degree.size() != pools.values.size()) {
        throw Error("degree: must hold one number per node");
    }
    Bounds checked = bounds;
    checked.documents = std::numeric_limits<std::int64_t>::max();  // no bound is needed here
    check_pools(forward, batch, checked, queue);
    if (rank.semantic != nullptr) {
        check_scores(rank.semantic, degree.size(), queue);
    }
    if (batch.lists == 0) {
        return;
    }
    const std::size_t slots = slots_for(bounds);
    const bool shared = slots <= shared_slots;
    const std::size_t memory = parts_size + (shared ? slots * slot_size : 0);
    const std::size_t blocks = shared ? pools.size() : std::min(pools.size(), blocks_at_once);
    cudaFuncSetAttribute(degree_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(parts_size + shared_slots * slot_size));
    GPU_LAUNCH(degree_kernel, blocks_for(blocks, 1), threads, memory, stream_of(queue), forward, batch, weight,
               static_cast<std::int64_t>(slots),
               shared ? nullptr : reinterpret_cast<unsigned char*>(queue.workspace.data()), degree.data(), rank,
               queue.status);
    check_launch("weighted_degree");
}

}  // namespace

std::size_t weighted_degree_workspace(std::size_t pools, const Bounds& bounds) {
    const std::size_t slots = slots_for(bounds);
    return slots <= shared_slots ? 0 : std::min(pools, blocks_at_once) * slots * slot_size;
}

void weighted_degree(const Forward& x, const Pools& pools, EdgeWeight weight, const Bounds& bounds,
                     std::span<float> degree, const Queue& queue) {
    run(x, pools, weight, bounds, degree, {nullptr, nullptr, 0.0f}, queue);
}

void degree_rank(const Forward& x, const Pools& pools, std::span<const float> semantic, EdgeWeight weight,
                 float alpha, const Bounds& bounds, std::span<float> degree, std::span<float> score,
                 const Queue& queue) {
    check_alpha(alpha);
    if (semantic.size() != degree.size() || score.size() != degree.size()) {
        throw Error("semantic: must hold one number per node");
    }
    run(x, pools, weight, bounds, degree, {semantic.data(), score.data(), alpha}, queue);
}

}  // namespace pyfast::cuda
