// eigenvector: a node of a pool's graph is as central as those that lead to it.
#pragma once

#include <cstdint>
#include <span>

#include "pyfast/api.hpp"
#include "pyfast/graphs.hpp"

namespace pyfast {

struct EigenvectorOptions {
    double tolerance = 1e-7;  // of the residual, see below
    std::int64_t max_iterations = 1000;
    int threads = 1;
};

// centrality[v], for every node of every pool: x of
//
//   x_v = (1 / lambda) * sum over edges (u, v) of w_uv x_u,   lambda the largest eigenvalue, x >= 0, ||x|| = 1
//
// both norms Euclidean. A pool without edges: all equal, 1 / sqrt(n). Where the largest eigenvalue has several
// eigenvectors (components of the same strength): the one nearest to all equal. A self-loop is an edge like any
// other.
//
// Power iteration in double, from all equal, on A + s I with s a quarter of the present estimate of lambda: it
// converges where a graph is bipartite too. It ends where ||A x - mu x|| <= tolerance * mu with mu = ||A x||, else
// after max_iterations, and what was reached then is the result: a pool that does not converge (a directed graph
// without cycles has no such x; two components may be nearly as strong) does not trouble its neighbours.
// O(edges) a step and O(pool) memory a thread. Thread-safe; a pool's result depends on nothing but the pool.
// Throws Error on malformed input.
PYFAST_API void eigenvector(const Graphs& graphs, const EigenvectorOptions& options, std::span<float> centrality);

}  // namespace pyfast
