// evidence_graph: the weighted graph of shared terms among the documents of each pool.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "pyfast/api.hpp"
#include "pyfast/buffer.hpp"
#include "pyfast/pools.hpp"

namespace pyfast {

// Weight of the edge (i, j), summed over the terms t that both documents hold.
enum class EdgeWeight {
    sum,  // x_it + x_jt : the sum of the shared terms' scores (N2N-GQA)
    dot,  // x_it * x_jt
    min,  // min(x_it, x_jt)
};

// A user's own share of one term in the weight of the edge (i, j): given x_it and x_jt.
using TermWeight = float (*)(float, float);

struct EvidenceGraphOptions {
    EdgeWeight weight = EdgeWeight::sum;
    TermWeight function = nullptr;  // in place of `weight`
    Idf idf = Idf::corpus;
    float threshold = 0.0f;               // an edge stays where its weight is above this
    std::optional<std::int64_t> top_k{};  // of each node's edges only the k strongest; ties: earlier in the pool
    int threads = 1;
};

// CSR over the N nodes of all pools. Node v of pool p is its document v - offsets[p]; `indices` count within
// the pool, so a pool's rows are bitwise the same alone and in any batch.
struct Graph {
    Buffer<std::int64_t> indptr;  // N + 1
    Buffer<std::int32_t> indices;
    Buffer<float> weights;
};

// Edges of every pool. `masked` (empty, or one list per pool) names terms that count as shared by nobody.
//
// Without top_k the graph is symmetric, bit for bit, unless a function is not. O(sum of df^2) additions a pool,
// vectorised for frequent terms; with a function one by one, and it must be thread-safe. Memory: the edges, twice
// at most and for a moment; O(pool), and 4 to 8 bytes per term of the vocabulary, a thread. Pools are shared among
// the threads, and above 2,048 documents the rows of a pool. Thread-safe. Throws Error on malformed pools, rows or
// masks, on a threshold that is negative or not finite, on a top_k below 1, and where a function's values do not
// add up to finite weights.
PYFAST_API Graph evidence_graph(const Forward& x, const Pools& pools, const Ragged<std::int32_t>& masked,
                                const EvidenceGraphOptions& options);

}  // namespace pyfast
