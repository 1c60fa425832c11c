#include <limits>

#include "graph_rank.cuh"
#include "pyfast/cuda/graph_rank.hpp"
#include "pyfast/cuda/weighted_degree.hpp"
#include "pyfast/error.hpp"
#include "term_table.cuh"

namespace pyfast::cuda {

namespace {

// The unit of a pool's weights: a power of two of which all of them are whole multiples. If every sum of multiples
// fits 63 bits, sums are exact, and need no order.
struct Unit {
    int exponent;  // of the unit, plus 150
    bool exact;

    [[nodiscard]] static __device__ int exponent_of(float weight) {
        const int exponent = __float_as_int(weight) >> 23;
        return exponent > 1 ? exponent : 1;
    }
    [[nodiscard]] static __device__ int digits_of(float weight) {
        const int bits = __float_as_int(weight);
        return (bits & 0x7FFFFF) | (bits >> 23 != 0 ? 0x800000 : 0);
    }
    [[nodiscard]] __device__ long long multiple(float weight) const {
        const int shift = exponent_of(weight) - exponent;
        const long long digits = digits_of(weight);
        if (digits == 0) {
            return 0;  // its exponent may be more than 63 below that of the unit
        }
        return shift >= 0 ? digits << shift : digits >> -shift;
    }
    [[nodiscard]] __device__ double number(long long multiples) const {
        return static_cast<double>(multiples) *
               __longlong_as_double(static_cast<long long>(exponent - 150 + 1023) << 52);
    }
};

[[nodiscard]] __device__ inline int block_max(int number, int* parts) {
    return block_reduce(number, parts, [](int n) { return warp_max(n); }, number);
}

// Called by all threads of a block.
__device__ Unit unit_of(const ForwardArrays& x, const PoolArrays& pools, std::int64_t first, std::int64_t last,
                        int* parts) {
    int low = -1024;  // negated, so that all are maxima
    int high = 0;
    int chunks = 0;  // of the current row so far
    int longest = 0;
    std::int64_t document = -1;
    Walk(x, pools, first, last).each([&](const Chunk& chunk) {
        const int digits = chunk.there() ? Unit::digits_of(chunk.weight) : 0;
        if (digits != 0) {
            const int lowest = Unit::exponent_of(chunk.weight) + __ffs(digits) - 1;
            const int highest = Unit::exponent_of(chunk.weight) + 31 - __clz(digits);
            low = -lowest > low ? -lowest : low;
            high = highest > high ? highest : high;
        }
        chunks = chunk.e == chunk.end || chunk.v != document ? 1 : chunks + 1;
        document = chunk.v;
        longest = chunks > longest ? chunks : longest;
    });
    longest = 32 - __clz(longest * lanes);
    low = -block_max(low, parts);
    high = block_max(high, parts);
    longest = block_max(longest, parts);
    const int documents = 64 - __clzll(last - first) + 1;
    return {high == 0 ? 1 : low, high == 0 || high - low + 1 + documents + longest < 62};
}

// The terms of a pool, with the data that the formula needs. If sums are exact: the sum of all weights. If not,
// for `sum` the same, added document by document, and for `dot` the largest weight and the sum of the others: the
// sum of all weights except x is then (largest - x) + the sum of the others, because a difference of two sums
// would lose all precision if x is most of them.
struct Terms {
    TermTable table;
    long long* sums;  // [slots]

    __device__ Terms(unsigned char* shared, int slots)
        : table{reinterpret_cast<std::int32_t*>(shared + TableSize::parts_size) + 2 * slots,
                reinterpret_cast<std::int32_t*>(shared + TableSize::parts_size) + 3 * slots,
                reinterpret_cast<std::int32_t*>(shared + TableSize::parts_size - 16), slots},
          sums(reinterpret_cast<long long*>(shared + TableSize::parts_size)) {}

    [[nodiscard]] __device__ double& rough(int slot) const { return reinterpret_cast<double*>(sums)[slot]; }
    [[nodiscard]] __device__ float& largest(int slot) const {
        return reinterpret_cast<float*>(table.counts)[slot];
    }
    __device__ void clear_sums() const {
        for (int slot = static_cast<int>(threadIdx.x); slot < table.slots; slot += static_cast<int>(blockDim.x)) {
            sums[slot] = 0;
        }
    }
    // Adds two words of 32 bits, because shared memory adds these at once.
    __device__ void add_exactly(int slot, long long multiples) const {
        auto* const halves = reinterpret_cast<unsigned*>(sums + slot);
        const auto low = static_cast<unsigned>(multiples);
        const unsigned before = atomicAdd(halves, low);
        const unsigned high = static_cast<unsigned>(multiples >> 32) + (before + low < before ? 1 : 0);
        if (high != 0) {
            atomicAdd(halves + 1, high);
        }
    }
    // Puts the terms into the table. Returns false if the table is too full.
    __device__ bool fill(const ForwardArrays& x, const PoolArrays& pools, std::int64_t first, std::int64_t last,
                         const Unit& unit) const {
        clear_sums();
        table.clear();
        return table.fill(x, pools, first, last, [&](const Chunk& chunk) {
            bool fresh = false;
            if (table.has_part_of(chunk.term)) {
                const int slot = table.add(chunk.term, fresh);
                atomicAdd(table.counts + slot, 1);
                if (unit.exact) {
                    add_exactly(slot, unit.multiple(chunk.weight));
                }
            }
            return fresh;
        });
    }
    // Adds the weights document by document.
    __device__ void add_in_order(const ForwardArrays& x, const PoolArrays& pools, EdgeWeight weight,
                                 std::int64_t first, std::int64_t last) const {
        for (int slot = static_cast<int>(threadIdx.x); slot < table.slots; slot += static_cast<int>(blockDim.x)) {
            rough(slot) = 0.0;
            if (weight == EdgeWeight::dot) {
                largest(slot) = 0.0f;
            }
        }
        __syncthreads();
        for (std::int64_t v = first; v < last; ++v) {
            const std::int32_t document = pools.values[v];
            const std::int64_t end = x.offset(document + 1);
            for (std::int64_t e = x.offset(document) + threadIdx.x; e < end; e += blockDim.x) {
                if (const std::int32_t term = x.term(e); table.has_part_of(term)) {
                    const int slot = table.find(term);
                    const float added = x.weights[e];
                    if (weight == EdgeWeight::sum) {
                        rough(slot) += static_cast<double>(added);
                    } else {
                        rough(slot) += static_cast<double>(fminf(added, largest(slot)));
                        largest(slot) = fmaxf(added, largest(slot));
                    }
                }
            }
            __syncthreads();  // a term occurs once in a document, so its sum grows document by document
        }
    }
    // What one entry adds to the degree of its document.
    [[nodiscard]] __device__ double part(int slot, float own, EdgeWeight weight, const Unit& unit) const {
        const auto mine = static_cast<double>(own);
        if (weight == EdgeWeight::dot) {
            return mine * (unit.exact ? unit.number(sums[slot] - unit.multiple(own))
                                      : (static_cast<double>(largest(slot)) - mine) + rough(slot));
        }
        return (table.counts[slot] - 2.0) * mine + rough(slot);
    }
};

// Adds up the degree of each document of the pool, one warp for each. `sums` has what earlier parts of the
// vocabulary have added.
__device__ void sum_documents(const Terms& terms, const ForwardArrays& x, const PoolArrays& pools,
                              EdgeWeight weight, const Unit& unit, std::int64_t first, std::int64_t last,
                              long long* sums, float* degree) {
    const TermTable& table = terms.table;
    const bool begins = table.part == 0;
    const bool ends = table.part + 1 == 1 << table.cuts;
    Walk walk(x, pools, first, last);
    if (unit.exact && weight == EdgeWeight::sum) {
        long long total = 0;
        walk.each([&](const Chunk& chunk) {
            if (chunk.there() && table.has_part_of(chunk.term)) {
                const int slot = table.find(chunk.term);
                total += (table.counts[slot] - 2) * unit.multiple(chunk.weight) + terms.sums[slot];
            }
            if (chunk.ends()) {
                total = warp_sum(total);
                if (lane_of_thread() == 0) {
                    total += begins ? 0 : sums[chunk.v];
                    if (ends) {
                        degree[chunk.v] = static_cast<float>(unit.number(total));
                    } else {
                        sums[chunk.v] = total;
                    }
                }
                total = 0;
            }
        });
        return;
    }
    auto* const rough = reinterpret_cast<double*>(sums);
    double total = 0.0;
    walk.each([&](const Chunk& chunk) {
        if (chunk.there() && table.has_part_of(chunk.term)) {
            total += terms.part(table.find(chunk.term), chunk.weight, weight, unit);
        }
        if (chunk.ends()) {
            total = warp_sum(total);
            if (lane_of_thread() == 0) {
                total += begins ? 0.0 : rough[chunk.v];
                if (ends) {
                    degree[chunk.v] = static_cast<float>(total);
                } else {
                    rough[chunk.v] = total;
                }
            }
            total = 0.0;
        }
    });
}

struct Rank {
    const float* semantic;  // null: no scores are computed
    float* score;
    float alpha;
};

// One block for each pool.
__global__ void degree_kernel(ForwardArrays x, PoolArrays pools, EdgeWeight weight, int slots, long long* sums,
                              float* degree, Rank rank, const std::int32_t* status) {
    if (*status != 0) {
        return;
    }
    GPU_DYN_SHARED(unsigned char, shared);
    Terms terms(shared, slots);
    TermTable& table = terms.table;
    for (std::int64_t p = blockIdx.x; p < pools.lists; p += gridDim.x) {
        const std::int64_t first = pools.offsets[p];
        const std::int64_t last = pools.offsets[p + 1];
        const Unit unit = unit_of(x, pools, first, last, reinterpret_cast<int*>(shared));
        table.cuts = 0;
        for (table.part = 0; table.part < 1 << table.cuts; ++table.part) {
            if (!terms.fill(x, pools, first, last, unit)) {
                ++table.cuts;
                table.part = -1;
                continue;
            }
            if (!unit.exact) {
                terms.add_in_order(x, pools, weight, first, last);
            }
            sum_documents(terms, x, pools, weight, unit, first, last, sums, degree);
            __syncthreads();
        }
        if (rank.semantic != nullptr) {
            rank_pool(rank.semantic, degree, first, last, rank.alpha, rank.score,
                      reinterpret_cast<float*>(shared));
        }
    }
}

void run(const Forward& x, const Pools& pools, EdgeWeight weight, std::span<float> degree, const Rank& rank,
         const Queue& queue) {
    const ForwardArrays forward = forward_arrays(x);
    const PoolArrays batch = pool_arrays(pools);
    check_queue(queue, weighted_degree_workspace(degree.size()));
    if (weight == EdgeWeight::min) {
        throw Error("weight: a GPU does not support 'min'; add up the rows of evidence_graph instead");
    }
    if (degree.size() != pools.values.size()) {
        throw Error("degree: must hold one number per node");
    }
    check_pools(forward, batch, std::numeric_limits<std::int64_t>::max(), queue);
    if (rank.semantic != nullptr) {
        check_scores(rank.semantic, degree.size(), queue);
    }
    if (batch.lists == 0) {
        return;
    }
    const TableSize size(forward, batch);
    cudaFuncSetAttribute(degree_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(TableSize::parts_size + TableSize::most_slots * TableSize::slot_size));
    GPU_LAUNCH(degree_kernel, blocks_for(pools.size(), 1), size.threads, size.bytes(), stream_of(queue), forward,
               batch, weight, size.slots, reinterpret_cast<long long*>(queue.workspace.data()), degree.data(),
               rank, queue.status);
    check_launch("weighted_degree");
}

}  // namespace

std::size_t weighted_degree_workspace(std::size_t nodes) { return nodes * sizeof(long long); }

void weighted_degree(const Forward& x, const Pools& pools, EdgeWeight weight, std::span<float> degree,
                     const Queue& queue) {
    run(x, pools, weight, degree, {nullptr, nullptr, 0.0f}, queue);
}

void degree_rank(const Forward& x, const Pools& pools, std::span<const float> semantic, EdgeWeight weight,
                 float alpha, std::span<float> degree, std::span<float> score, const Queue& queue) {
    check_alpha(alpha);
    if (semantic.size() != degree.size() || score.size() != degree.size()) {
        throw Error("semantic: must hold one number per node");
    }
    run(x, pools, weight, degree, {semantic.data(), score.data(), alpha}, queue);
}

}  // namespace pyfast::cuda
