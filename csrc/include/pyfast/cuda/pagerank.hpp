// pagerank on a GPU: all pools of a batch in one launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pyfast/api.hpp"
#include "pyfast/cuda/device.hpp"
#include "pyfast/graphs.hpp"
#include "pyfast/pagerank.hpp"

namespace pyfast::cuda {

// Bytes: 16 for each edge, and a few numbers for each node.
PYFAST_API std::size_t pagerank_workspace(std::size_t nodes, std::size_t edges);

// The ranks of pyfast::pagerank, within a relative 1e-6: the same power iteration in double, which ends under the
// same conditions.
//
// A block handles a pool. It writes the edges of a small pool into a matrix in shared memory, and those of a
// larger pool into a matrix in the workspace if they fill at least half of it. The edges of all other pools are
// sorted by target, row by row. So each sum has one order. In each step, a lane adds up a column of the matrix, or
// a warp what reaches a node. The arrays of the graphs may have room behind the last edge. `converged` is empty or
// has one number for each pool: 1 if the pool converged within max_iterations, else 0. All spans are device
// memory. Throws Error for lengths and options as pyfast::pagerank does. Faults: offsets, edges, edge_weights,
// scores.
PYFAST_API void pagerank(const Graphs& graphs, std::span<const float> personalization,
                         const PageRankOptions& options, std::span<float> rank, std::span<std::uint8_t> converged,
                         const Queue& queue);

}  // namespace pyfast::cuda
