// weighted_degree on a GPU: the centrality of N2N-GQA, without building a single edge.
#pragma once

#include <cstddef>
#include <span>

#include "pyfast/api.hpp"
#include "pyfast/cuda/device.hpp"
#include "pyfast/cuda/pools.hpp"
#include "pyfast/evidence_graph.hpp"
#include "pyfast/pools.hpp"

namespace pyfast::cuda {

// Bytes: none where the terms of a pool fit the shared memory of a block, that is, up to 4,096 entries.
PYFAST_API std::size_t weighted_degree_workspace(std::size_t pools, const Bounds& bounds);

// The degrees of pyfast::weighted_degree in its closed forms, for `sum` and `dot`; sums in double, rounded once,
// to within a unit in the last place of the CPU's. A block takes a pool: its terms go into a hash table, a
// document after the other, so that each sum has one order; then each warp adds up the parts of a document. All
// spans are device memory. Throws Error for `min`, which has no such form, and where `degree` does not hold a
// number per node. Faults: offsets, documents, rows, weights, bounds.
PYFAST_API void weighted_degree(const Forward& x, const Pools& pools, EdgeWeight weight, const Bounds& bounds,
                                std::span<float> degree, const Queue& queue);

}  // namespace pyfast::cuda
