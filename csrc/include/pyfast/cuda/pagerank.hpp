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

// Bytes: the edges by target, and a few numbers for each node.
PYFAST_API std::size_t pagerank_workspace(std::size_t nodes, std::size_t edges);

// The ranks of pyfast::pagerank, within 1e-6 relatively: the same power iteration in double, with the same end.
//
// A block takes a pool. It sorts the edges by target, a row after the other, so that each sum has one order; then
// in every step a warp adds up what comes to a node. `converged`, empty or of one number per pool, is given 1
// where a pool came to that end within max_iterations, else 0. All spans are device memory. Throws Error on
// lengths and options as pyfast::pagerank does. Faults: offsets, edges, edge_weights, scores.
PYFAST_API void pagerank(const Graphs& graphs, std::span<const float> personalization,
                         const PageRankOptions& options, std::span<float> rank, std::span<std::uint8_t> converged,
                         const Queue& queue);

}  // namespace pyfast::cuda
