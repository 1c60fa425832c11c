// weighted_degree on a GPU: the centrality of N2N-GQA, computed without edges.
#pragma once

#include <cstddef>
#include <span>

#include "pyfast/api.hpp"
#include "pyfast/cuda/device.hpp"
#include "pyfast/evidence_graph.hpp"
#include "pyfast/pools.hpp"

namespace pyfast::cuda {

// Bytes: 8 for each node.
PYFAST_API std::size_t weighted_degree_workspace(std::size_t nodes);

// The degrees of pyfast::weighted_degree by its formulas for `sum` and `dot`, within one unit in the last place of
// the CPU's. A block handles a pool: it puts the terms into a hash table in shared memory, in parts if there are
// many. The sums of a term are whole multiples of a unit, and so exact in any order; if the weights of a pool are
// too far apart for that, they are added document by document in double. Then a warp adds up the parts of each
// document. All spans are device memory. Throws Error for `min`, which has no such formula, and if `degree` does
// not have one number for each node. Faults: offsets, documents, rows, weights.
PYFAST_API void weighted_degree(const Forward& x, const Pools& pools, EdgeWeight weight, std::span<float> degree,
                                const Queue& queue);

}  // namespace pyfast::cuda
