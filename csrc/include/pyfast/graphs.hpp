// Weighted graphs of a batch of pools, as ops of graphs read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pyfast/api.hpp"

namespace pyfast {

// CSR over the N nodes of all pools, as evidence_graph gives it (see Graph there): the nodes of pool p are
// pool_offsets[p] .. pool_offsets[p + 1), node v's edges indptr[v] .. indptr[v + 1), and `indices` count within
// the pool. An edge leads from its row to its index. Views: the caller keeps the memory alive during the call.
//
// The indices of a row are strictly increasing and below the pool's size; weights are finite and not negative,
// and an edge of weight 0 is none. A self-loop is allowed; what it means is the op's to say.
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
    std::span<const std::int64_t> indptr;   // n + 1, of the batch: the first need not be 0
    std::span<const std::int32_t> indices;  // of this pool
    std::span<const float> weights;         // of this pool

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

// Throws Error where the offsets do not fit each other or the edges. O(N), at any number of edges.
PYFAST_API void check_graphs(const Graphs& graphs);

// The graph of pool p of checked graphs. Throws Error where an index or a weight of it is malformed.
PYFAST_API PoolEdges checked_pool(const Graphs& graphs, std::size_t p);

}  // namespace pyfast
