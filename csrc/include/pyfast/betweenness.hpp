// betweenness: the share of a pool graph's shortest paths that pass through a node.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "pyfast/api.hpp"
#include "pyfast/graphs.hpp"
#include "pyfast/iteration.hpp"

namespace pyfast {

enum class EdgeLength {
    inverse,  // 1 / weight: weights are strengths
    hops,     // 1
};

struct BetweennessOptions {
    EdgeLength length = EdgeLength::inverse;
    std::span<const double> lengths = {};  // replaces `length`: the length of each edge, finite and above 0
    // how many of a pool's nodes are sources, drawn with `seed`; std::nullopt: all
    std::optional<std::int64_t> k{};
    std::uint64_t seed = 0;
    int threads = 1;
    Stop stop = nullptr;
};

// Two paths count as equally long if the relative difference of their lengths is at most this.
constexpr double equal_length = 1e-10;

// For each node v of each pool of n nodes, centrality[v] is
//
//   sum over ordered pairs (s, t), s != v != t, of (shortest paths s to t through v) / (shortest paths s to t),
//
// divided by (n - 1)(n - 2), or 0 if n <= 2. A pair without a path adds 0. Edges of weight 0 and self-loops are
// ignored, whatever their length.
//
// With k < n, only k of the nodes are sources (Brandes and Pich 2007). The sum is then divided by the number of
// its pairs: k (n - 2), or (k - 1)(n - 2) for a node that is itself a source, which gets NaN if k is 1.
//
// The algorithm is Brandes's, in double. From a source, Dijkstra settles the nodes by distance. The edge (u, v) is
// on a shortest path if u is settled before v and distance_u + length_uv <= distance_v * (1 + equal_length). For
// dense pools of up to 512 nodes, all distances are computed first, vectorised, in O(n^3). Other pools take
// O(edges log n) for each source, or O(edges) with `hops`, and O(edges) memory for each thread. Threads share a
// pool of more than 512 sources. Thread-safe. The result of a pool depends only on the pool and the options.
// Throws Error for malformed input, and Stopped if `stop` is set.
PYFAST_API void betweenness(const Graphs& graphs, const BetweennessOptions& options, std::span<float> centrality);

}  // namespace pyfast
