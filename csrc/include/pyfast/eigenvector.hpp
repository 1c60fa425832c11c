// eigenvector: a node of a pool's graph is as central as the nodes that lead to it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pyfast/api.hpp"
#include "pyfast/graphs.hpp"
#include "pyfast/iteration.hpp"

namespace pyfast {

struct EigenvectorOptions {
    double tolerance = 1e-7;  // of the residual, see below; 0: as small as rounding allows
    std::int64_t max_iterations = 1000;
    int threads = 1;
    Stop stop = nullptr;
};

// For each node v of each pool, centrality[v] is x_v, where
//
//   x_v = (1 / lambda) * sum over edges (u, v) of w_uv x_u,   lambda the largest eigenvalue, x >= 0, ||x|| = 1
//
// with Euclidean norms. Without edges, or without cycles, no eigenvalue is above 0, and all nodes get 1 / sqrt(n).
// If the largest eigenvalue has several eigenvectors (components of equal strength), x is the one nearest to the
// vector with equal entries. A self-loop is an ordinary edge.
//
// The iteration ends when ||A x - mu x|| <= tolerance * mu, with mu = ||A x||. Then x is the exact eigenvector of
// weights that differ by at most that much. If the second eigenvalue is within a relative distance d of the first,
// the error of x is about tolerance / d.
//
// The op uses power iteration in double on A + s I, with s a quarter of the current estimate of lambda. It starts
// from equal entries, and also converges for bipartite graphs. A pool that needs more than 50 steps has
// eigenvalues close to each other. Then the op builds an Arnoldi basis of 16 vectors (later of 32, 64 and 128),
// and runs the power iteration inside the basis to its limit by squaring the small matrix. If a basis does not
// improve x, the op leaves it.
//
// Returns, for each pool, the number of products with A, and whether the iteration ended within max_iterations
// products (false if there are edges but no cycle). If it did not, the result is the last x; other pools are not
// affected. Time: O(edges) for each product. Memory for each thread: O(pool), and with a basis 1 KB for each node,
// up to 32 MB. Thread-safe. The result of a pool depends only on the pool. Throws Error for malformed input, and
// Stopped if `stop` is set.
PYFAST_API std::vector<Convergence> eigenvector(const Graphs& graphs, const EigenvectorOptions& options,
                                                std::span<float> centrality);

}  // namespace pyfast
