// weighted_degree on a GPU: the centrality of N2N-GQA, computed without edges.
#pragma once

#include <cstddef>
#include <span>

#include "pyfast/api.hpp"
#include "pyfast/cuda/device.hpp"
#include "pyfast/cuda/pools.hpp"
#include "pyfast/evidence_graph.hpp"
#include "pyfast/pools.hpp"

namespace pyfast::cuda {

// Bytes: none if the terms of a pool fit into the shared memory of a block, that is, up to 4,096 entries.
PYFAST_API std::size_t weighted_degree_workspace(std::size_t pools, const Bounds& bounds);

// The degrees of pyfast::weighted_degree by its formulas for `sum` and `dot`. Sums are double, rounded once, and
// within one unit in the last place of the CPU's. A block handles a pool: it puts the terms into a hash table,
// document by document, so that each sum has one order. Then a warp adds up the parts of each document. All spans
// are device memory. Throws Error for `min`, which has no such formula, and if `degree` does not have one number
// for each node. Faults: offsets, documents, rows, weights, bounds.
PYFAST_API void weighted_degree(const Forward& x, const Pools& pools, EdgeWeight weight, const Bounds& bounds,
                                std::span<float> degree, const Queue& queue);

}  // namespace pyfast::cuda
