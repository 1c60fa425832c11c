// pagerank: how often a random walk over a pool's graph comes by.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pyfast/api.hpp"
#include "pyfast/graphs.hpp"
#include "pyfast/iteration.hpp"

namespace pyfast {

struct PageRankOptions {
    double damping = 0.85;    // probability to follow an edge, in [0, 1)
    double tolerance = 1e-8;  // a step that changes a pool's ranks by no more than this, added up, is the last
    std::int64_t max_iterations = 1000;
    int threads = 1;
    Stop stop = nullptr;  // not looked at on a GPU
};

// rank[v], for every node of every pool; a pool's ranks add up to 1:
//
//   rank_v = damping * sum over edges (u, v) of rank_u w_uv / total_u + (1 - damping + damping * stuck) *
//   restart_v
//
// where total_u is the sum of the weights that leave u, and stuck the rank of the nodes whose total is 0: they
// restart. restart is uniform, or where `personalization` is given (one number per node, not negative) in
// proportion to it; a pool whose numbers are all 0: uniform. A self-loop is an edge like any other.
//
// Power iteration in double; O(edges) a step and O(pool) memory a thread. A step shrinks what is left of the error
// by the damping at least: with the default 118 steps are enough for any graph. Gives, for each pool, the
// steps that it took, and whether the last one changed no more than the tolerance (or than rounding does, 1e-14);
// if not, what was reached after max_iterations is the result. Thread-safe; a pool's result depends on nothing but
// the pool. Throws Error on malformed input, Stopped where `stop` is set.
PYFAST_API std::vector<Convergence> pagerank(const Graphs& graphs, std::span<const float> personalization,
                                             const PageRankOptions& options, std::span<float> rank);

}  // namespace pyfast
