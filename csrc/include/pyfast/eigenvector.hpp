// eigenvector: a node of a pool's graph is as central as those that lead to it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pyfast/api.hpp"
#include "pyfast/graphs.hpp"
#include "pyfast/iteration.hpp"

namespace pyfast {

struct EigenvectorOptions {
    double tolerance = 1e-7;  // of the residual, see below; 0: as far as rounding lets it fall
    std::int64_t max_iterations = 1000;
    int threads = 1;
    Stop stop = nullptr;
};

// centrality[v], for every node of every pool: x of
//
//   x_v = (1 / lambda) * sum over edges (u, v) of w_uv x_u,   lambda the largest eigenvalue, x >= 0, ||x|| = 1
//
// both norms Euclidean. Without edges, or without cycles among them, no eigenvalue is above 0: all equal,
// 1 / sqrt(n). Where the largest eigenvalue has several
// eigenvectors (components of the same strength): the one nearest to all equal. A self-loop is an edge like any
// other.
//
// It ends where ||A x - mu x|| <= tolerance * mu with mu = ||A x||: x is the eigenvector of weights that differ by
// no more than that. Where the second eigenvalue is as close as 1 - d to the first, relatively, x is right to some
// tolerance / d.
//
// Power iteration in double, from all equal, on A + s I with s a quarter of the present estimate of lambda: it
// converges where a graph is bipartite too. A pool that it has not brought to an end in 50 steps has eigenvalues
// close to each other; then an Arnoldi basis of 16 vectors, and of twice as many each time up to 128, is made from
// what was reached, and power iteration goes on within it to its limit (by squaring the small matrix). A basis
// from which nothing better comes is left again.
//
// Gives, for each pool, the products with A that it took, and whether it came to that end within max_iterations of
// them (without cycles: not). If not, what was reached is the result; neighbours do not notice. O(edges) a
// product; memory O(pool) a thread, and with a basis 1 KB a node up to 32 MB. Thread-safe; a pool's result depends
// on nothing but the pool. Throws Error on malformed input, Stopped where `stop` is set.
PYFAST_API std::vector<Convergence> eigenvector(const Graphs& graphs, const EigenvectorOptions& options,
                                                std::span<float> centrality);

}  // namespace pyfast
