// weighted_degree: the centrality of N2N-GQA, computed without edges.
#pragma once

#include <span>

#include "pyfast/api.hpp"
#include "pyfast/evidence_graph.hpp"
#include "pyfast/pools.hpp"

namespace pyfast {

struct WeightedDegreeOptions {
    EdgeWeight weight = EdgeWeight::sum;
    TermWeight function = nullptr;  // replaces `weight`
    Idf idf = Idf::corpus;
    int threads = 1;
};

// degree[v] is the sum of the weights of v's edges in the unpruned graph of its pool.
//
// df_t is the number of the pool's documents that have the term t, and S_t is the sum of their weights:
//   sum: sum over t in i of (df_t - 2) x_it + S_t          dot: sum over t in i of x_it (S_t - x_it)
// So a pool takes O(entries of its rows). S_t - x_it is not a subtraction: the weights before and after i are
// added up, so nothing is lost if x_it is most of S_t. `min` and functions have no such formula: for them, the
// rows of evidence_graph are summed. Sums are double and rounded once. Memory for each thread: 16 to 32 bytes for
// each term of the vocabulary (for rows: 4 to 8 bytes, and O(pool)). Thread-safe. Throws Error for malformed pools
// or rows, and if `degree` does not have one number for each node.
PYFAST_API void weighted_degree(const Forward& x, const Pools& pools, const WeightedDegreeOptions& options,
                                std::span<float> degree);

}  // namespace pyfast
