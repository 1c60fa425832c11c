// The weighted graphs of a batch of pools, as the ops on graphs read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pyfast/api.hpp"

namespace pyfast {

// CSR over the N nodes of all pools, as evidence_graph returns it (see Graph there). Pool p has the nodes
// pool_offsets[p] .. pool_offsets[p + 1). Node v has the edges indptr[v] .. indptr[v + 1). `indices` are positions
// within the pool. An edge leads from its row to its index. These are views: the caller keeps the memory alive
// during the call.
//
// The indices of a row are strictly increasing and below the size of the pool. Weights are finite and not
// negative; an edge of weight 0 does not count. Self-loops are allowed; each op says what they mean.
struct Graphs {
    std::span<const std::int64_t> pool_offsets;  // P + 1
    std::span<const std::int64_t> indptr;        // N + 1
    std::span<const std::int32_t> indices;
    std::span<const float> weights;

    [[nodiscard]] std::size_t size() const { return pool_offsets.empty() ? 0 : pool_offsets.size() - 1; }
    [[nodiscard]] std::size_t nodes() const { return indptr.empty() ? 0 : indptr.size() - 1; }
};

// The checked graph of one pool.
struct PoolEdges {
    std::span<const std::int64_t> indptr;   // n + 1 offsets of the batch: the first one need not be 0
    std::span<const std::int32_t> indices;  // the indices of this pool
    std::span<const float> weights;         // the weights of this pool

    struct Row {
        std::span<const std::int32_t> indices;
        std::span<const float> weights;
    };
    [[nodiscard]] std::size_t nodes() const { return indptr.size() - 1; }
    [[nodiscard]] std::size_t edges() const { return indices.size(); }
    [[nodiscard]] std::size_t begin(std::size_t v) const {
        return static_cast<std::size_t>(indptr[v] - indptr[0]);
    }
    [[nodiscard]] Row row(std::size_t v) const {
        const std::size_t count = begin(v + 1) - begin(v);
        return {indices.subspan(begin(v), count), weights.subspan(begin(v), count)};
    }
};

// Throws Error if the offsets do not fit each other or the edges. Time: O(N), for any number of edges.
PYFAST_API void check_graphs(const Graphs& graphs);

// The graph of pool p of checked graphs. Throws Error if one of its indices or weights is malformed.
PYFAST_API PoolEdges checked_pool(const Graphs& graphs, std::size_t p);

}  // namespace pyfast
