#include <limits>
#include <string>

#include "pools.cuh"
#include "pyfast/error.hpp"

namespace pyfast::cuda {

namespace {

constexpr int threads = 128;

// Whether the row of a document is inside the index.
__device__ inline bool row_holds(const ForwardArrays& x, std::int32_t document) {
    const std::int64_t begin = x.offset(document);
    const std::int64_t end = x.offset(document + 1);
    return begin >= 0 && begin <= end && end <= x.entries;
}

// For a warp: checks the offsets of pool p, and the number of its documents.
__device__ void check_pool(const PoolArrays& pools, std::int64_t most, std::int64_t p, std::int32_t* status) {
    if (!offsets_hold(pools, p)) {
        report(status, Fault::offsets);
    } else if (pools.offsets[p + 1] - pools.offsets[p] > most) {
        report(status, Fault::bounds);
    }
}

// For a warp: checks document v, counted through all pools, and its row.
__device__ void check_node(const ForwardArrays& x, const PoolArrays& pools, std::int64_t v, std::int32_t* status) {
    const std::int32_t document = pools.values[v];
    if (document < 0 || document >= x.documents) {
        report(status, Fault::documents);
        return;
    }
    if (!row_holds(x, document)) {
        report(status, Fault::rows);
        return;
    }
    const std::int64_t begin = x.offset(document);
    const std::int64_t end = x.offset(document + 1);
    for (std::int64_t e = begin + lane_of_thread(); e < end; e += lanes) {
        const std::int64_t term = x.index(e);
        const float weight = x.weights[e];
        if (term < 0 || term >= x.terms || (e > begin && term <= x.index(e - 1))) {
            report(status, Fault::rows);
        }
        if (!(weight >= 0.0f && weight <= Forward::largest_weight)) {
            report(status, Fault::weights);
        }
    }
}

// One warp for each pool, then one for each document.
__global__ void check_pools_kernel(ForwardArrays x, PoolArrays pools, std::int64_t most, std::int32_t* status) {
    for (std::int64_t item = warp_of_grid(); item < pools.lists + pools.size; item += warps_of_grid()) {
        if (item < pools.lists) {
            check_pool(pools, most, item, status);
        } else {
            check_node(x, pools, item - pools.lists, status);
        }
    }
}

// One warp for each pool.
__global__ void bounds_kernel(ForwardArrays x, PoolArrays pools, unsigned long long* bounds,
                              std::int32_t* status) {
    for (std::int64_t p = warp_of_grid(); p < pools.lists; p += warps_of_grid()) {
        if (!offsets_hold(pools, p)) {
            report(status, Fault::offsets);
            continue;
        }
        const std::int64_t first = pools.offsets[p];
        const std::int64_t last = pools.offsets[p + 1];
        unsigned long long entries = 0;
        for (std::int64_t v = first + lane_of_thread(); v < last; v += lanes) {
            const std::int32_t document = pools.values[v];
            if (document >= 0 && document < x.documents && row_holds(x, document)) {
                entries += static_cast<unsigned long long>(x.offset(document + 1) - x.offset(document));
            }
        }
        entries = warp_sum(entries);
        if (lane_of_thread() == 0) {
            const auto size = static_cast<unsigned long long>(last - first);
            atomicMax(bounds, size);
            atomicAdd(bounds + 1, size * size);
            atomicAdd(bounds + 2, entries);
        }
    }
}

}  // namespace

ForwardArrays forward_arrays(const Forward& x) {
    if (x.indptr64.empty() == x.indptr32.empty()) {
        throw Error("X.indptr: expected either 32-bit or 64-bit numbers");
    }
    if (!x.weights64.empty() || (!x.indices.empty() && !x.indices64.empty())) {
        throw Error("X: a GPU supports only float32 weights, and term ids of a single width");
    }
    const std::size_t entries = x.indices.size() + x.indices64.size();
    if (entries != x.weights.size()) {
        throw Error("X.data: expected one weight for each index (" + std::to_string(entries) + "), got " +
                    std::to_string(x.weights.size()));
    }
    if (x.documents() > std::numeric_limits<std::int32_t>::max()) {
        throw Error("X: a GPU supports at most 2147483647 rows");
    }
    if (x.terms < 0 || x.terms > std::numeric_limits<std::int32_t>::max()) {
        throw Error("X: expected 0 to 2147483647 terms");
    }
    return {x.indptr64.empty() ? nullptr : x.indptr64.data(),
            x.indptr32.empty() ? nullptr : x.indptr32.data(),
            x.indices64.empty() ? nullptr : x.indices64.data(),
            x.indices.data(),
            x.weights.data(),
            static_cast<std::int64_t>(entries),
            x.documents(),
            x.terms};
}

PoolArrays pool_arrays(const Pools& pools) {
    PoolArrays arrays = ragged_arrays(pools, "pool_offsets");
    if (arrays.lists == 0 && arrays.size > 0) {
        throw Error("pool_offsets: end at 0, but there are " + std::to_string(arrays.size) + " values");
    }
    return arrays;
}

void check_pools(const ForwardArrays& x, const PoolArrays& pools, std::int64_t most, const Queue& queue) {
    const auto items = static_cast<std::size_t>(pools.lists + pools.size);
    if (items > 0) {
        GPU_LAUNCH(check_pools_kernel, blocks_for(items, threads / lanes), threads, 0, stream_of(queue), x, pools,
                   most, queue.status);
    }
}

void pool_bounds(const Forward& x, const Pools& pools, std::span<std::int64_t> bounds, const Queue& queue) {
    const ForwardArrays forward = forward_arrays(x);
    const PoolArrays arrays = pool_arrays(pools);
    if (bounds.size() != 3) {
        throw Error("bounds: must hold three numbers");
    }
    check_queue(queue, 0);
    cudaMemsetAsync(bounds.data(), 0, bounds.size_bytes(), stream_of(queue));
    if (arrays.lists > 0) {
        GPU_LAUNCH(bounds_kernel, blocks_for(pools.size(), threads / lanes), threads, 0, stream_of(queue), forward,
                   arrays, reinterpret_cast<unsigned long long*>(bounds.data()), queue.status);
    }
    check_launch("pool_bounds");
}

}  // namespace pyfast::cuda
