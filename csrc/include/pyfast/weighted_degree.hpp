// weighted_degree: the centrality of N2N-GQA, without building a single edge.
#pragma once

#include <span>

#include "pyfast/api.hpp"
#include "pyfast/evidence_graph.hpp"
#include "pyfast/pools.hpp"

namespace pyfast {

struct WeightedDegreeOptions {
    EdgeWeight weight = EdgeWeight::sum;
    TermWeight function = nullptr;  // in place of `weight`
    Idf idf = Idf::corpus;
    int threads = 1;
};

// degree[v] = sum of the weights of the edges of v in the unpruned graph of its pool.
//
// With df_t the number of the pool's documents that hold t, and S_t the sum of their weights:
//   sum: sum over t in i of (df_t - 2) x_it + S_t          dot: sum over t in i of x_it (S_t - x_it)
// so a pool costs O(nnz). S_t - x_it is never subtracted: what the documents before and behind i hold of t is
// added up, and nothing is lost where x_it is most of S_t. `min` and functions have no such form: the rows of
// evidence_graph are summed. Sums are kept in double and rounded once. Memory: 16 to 32 bytes per term of the
// vocabulary a thread (by rows: 4 to 8, and O(pool)). Thread-safe. Throws Error on malformed pools or rows, and
// where `degree` does not hold a number per node.
PYFAST_API void weighted_degree(const Forward& x, const Pools& pools, const WeightedDegreeOptions& options,
                                std::span<float> degree);

}  // namespace pyfast
