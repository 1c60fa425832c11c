// pagerank: how often a random walk over a pool's graph visits a node.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pyfast/api.hpp"
#include "pyfast/graphs.hpp"
#include "pyfast/iteration.hpp"

namespace pyfast {

struct PageRankOptions {
    double damping = 0.85;    // the probability of following an edge, in [0, 1)
    double tolerance = 1e-8;  // the last step changes a pool's ranks by at most this, in sum
    std::int64_t max_iterations = 1000;
    int threads = 1;
    Stop stop = nullptr;  // not used on a GPU
};

// For each node v of each pool, rank[v]. The ranks of a pool add up to 1.
//
//   rank_v = damping * sum over edges (u, v) of rank_u w_uv / total_u
//            + (1 - damping + damping * stuck) * restart_v
//
// total_u is the sum of the weights of the edges that leave u. `stuck` is the rank of the nodes without such
// edges: they restart. `restart` is proportional to `personalization` (one number for each node, not negative). It
// is uniform if `personalization` is empty, or 0 for the whole pool. A self-loop is an ordinary edge.
//
// The op uses power iteration in double. Time: O(edges) for each step. Memory: O(pool) for each thread. Each step
// reduces the error at least by the factor `damping`: with the default, 118 steps are enough for any graph.
// Returns, for each pool, the number of steps, and whether the last step changed at most the tolerance (or 1e-14,
// the rounding error). If it changed more, the result is that of max_iterations steps. Thread-safe. The result of
// a pool depends only on the pool. Throws Error for malformed input, and Stopped if `stop` is set.
PYFAST_API std::vector<Convergence> pagerank(const Graphs& graphs, std::span<const float> personalization,
                                             const PageRankOptions& options, std::span<float> rank);

}  // namespace pyfast
