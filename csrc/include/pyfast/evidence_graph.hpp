// evidence_graph: for each pool, the weighted graph of the terms that its documents share.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "pyfast/api.hpp"
#include "pyfast/buffer.hpp"
#include "pyfast/pools.hpp"

namespace pyfast {

// The weight of the edge (i, j): a sum over the terms t that both documents have.
enum class EdgeWeight {
    sum,  // x_it + x_jt : the sum of the shared terms' scores (N2N-GQA)
    dot,  // x_it * x_jt
    min,  // min(x_it, x_jt)
};

// A function of the caller: the share of one term in the weight of the edge (i, j), from x_it and x_jt.
using TermWeight = float (*)(float, float);

struct EvidenceGraphOptions {
    EdgeWeight weight = EdgeWeight::sum;
    TermWeight function = nullptr;  // replaces `weight`
    Idf idf = Idf::corpus;
    float threshold = 0.0f;  // an edge stays if its weight is above this
    // each node keeps only its k strongest edges; if weights are equal, the earlier document comes first
    std::optional<std::int64_t> top_k{};
    int threads = 1;
};

// CSR over the N nodes of all pools. Node v of pool p is the pool's document v - offsets[p]. `indices` are
// positions within the pool, so the rows of a pool are bitwise the same alone and in any batch.
struct Graph {
    Buffer<std::int64_t> indptr;  // N + 1
    Buffer<std::int32_t> indices;
    Buffer<float> weights;
};

// The edges of each pool. `masked` is empty, or has a list of terms for each pool that do not count.
//
// Without top_k, the graph is symmetric bit for bit, unless a `function` is not symmetric. Time: O(sum of df^2)
// additions for each pool, vectorised for frequent terms. A `function` is called for each addition, and must be
// thread-safe. Memory: the edges (for a moment up to twice), and for each thread O(pool) and 4 to 8 bytes for each
// term of the vocabulary. Threads share the pools; if a pool has more than 2,048 documents, they share its rows.
// Thread-safe. Throws Error for malformed pools, rows or masks, for a threshold that is negative or not finite,
// for a top_k below 1, and if the values of a function do not add up to finite weights.
PYFAST_API Graph evidence_graph(const Forward& x, const Pools& pools, const Ragged<std::int32_t>& masked,
                                const EvidenceGraphOptions& options);

}  // namespace pyfast
