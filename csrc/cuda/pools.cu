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

// For a warp: checks the bounds of pool p, and the number of entries in its rows.
__device__ void check_pool(const ForwardArrays& x, const PoolArrays& pools, const Bounds& bounds, std::int64_t p,
                           std::int32_t* status) {
    if (!offsets_hold(pools, p)) {
        report(status, Fault::offsets);
        return;  // all lanes
    }
    const std::int64_t first = pools.offsets[p];
    const std::int64_t last = pools.offsets[p + 1];
    std::int64_t entries = 0;
    for (std::int64_t v = first + lane_of_thread(); v < last; v += lanes) {
        const std::int32_t document = pools.values[v];
        if (document >= 0 && document < x.documents && row_holds(x, document)) {
            entries += x.offset(document + 1) - x.offset(document);
        }
    }
    if (last - first > bounds.documents || warp_sum(entries) > bounds.entries) {
        report(status, Fault::bounds);
    }
}

// For a warp: checks document v of all pools, and its row.
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
        const std::int32_t term = x.indices[e];
        const float weight = x.weights[e];
        if (term < 0 || term >= x.terms || (e > begin && term <= x.indices[e - 1])) {
            report(status, Fault::rows);
        }
        if (!(weight >= 0.0f && weight <= Forward::largest_weight)) {
            report(status, Fault::weights);
        }
    }
}

// One warp for each pool, then one for each document.
__global__ void check_pools_kernel(ForwardArrays x, PoolArrays pools, Bounds bounds, std::int32_t* status) {
    for (std::int64_t item = warp_of_grid(); item < pools.lists + pools.size; item += warps_of_grid()) {
        if (item < pools.lists) {
            check_pool(x, pools, bounds, item, status);
        } else {
            check_node(x, pools, item - pools.lists, status);
        }
    }
}

}  // namespace

ForwardArrays forward_arrays(const Forward& x) {
    if (x.indptr64.empty() == x.indptr32.empty()) {
        throw Error("X.indptr: must be given, and once");
    }
    if (!x.indices64.empty() || !x.weights64.empty()) {
        throw Error("X: a GPU has term ids of 32 bits and weights in float");
    }
    if (x.indices.size() != x.weights.size()) {
        throw Error("X.data: " + std::to_string(x.weights.size()) + " for " + std::to_string(x.indices.size()) +
                    " indices");
    }
    if (x.terms < 0 || x.terms > std::numeric_limits<std::int32_t>::max()) {
        throw Error("X: must have term ids that fit 31 bits");
    }
    return {x.indptr64.empty() ? nullptr : x.indptr64.data(),
            x.indptr32.empty() ? nullptr : x.indptr32.data(),
            x.indices.data(),
            x.weights.data(),
            static_cast<std::int64_t>(x.indices.size()),
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

void check_pools(const ForwardArrays& x, const PoolArrays& pools, const Bounds& bounds, const Queue& queue) {
    if (bounds.documents < 0 || bounds.pairs < 0 || bounds.entries < 0) {
        throw Error("bounds: must not be negative");
    }
    const auto items = static_cast<std::size_t>(pools.lists + pools.size);
    if (items > 0) {
        GPU_LAUNCH(check_pools_kernel, blocks_for(items, threads / lanes), threads, 0, stream_of(queue), x, pools,
                   bounds, queue.status);
    }
}

}  // namespace pyfast::cuda
