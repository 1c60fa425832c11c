// betweenness: the share of shortest paths of a pool's graph that lead through a node.
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
    std::span<const double> lengths = {};  // in place of `length`: one per edge of the batch, finite and above 0
    std::optional<std::int64_t> k{};       // of each pool's nodes only so many are sources, drawn by `seed`
    std::uint64_t seed = 0;
    int threads = 1;
    Stop stop = nullptr;
};

// Two paths count as equally long where their lengths differ by no more than this, relatively.
constexpr double equal_length = 1e-10;

// centrality[v], for every node v of every pool of n nodes:
//
//   sum over ordered pairs (s, t), s != v != t, of (shortest paths s to t through v) / (shortest paths s to t),
//
// divided by (n - 1)(n - 2); 0 where n <= 2. Pairs without a path count 0, edges of weight 0 and self-loops do
// not, whatever their length.
//
// With k < n the sources s are k of the nodes (Brandes and Pich 2007), and the sum is divided by the number of
// its pairs: k (n - 2), or for one of the k, which is no source to itself, (k - 1)(n - 2): NaN where k is 1.
//
// Brandes, in double. From one source: nodes are settled by distance, as Dijkstra does it, and the edge (u, v) is
// on a shortest path where u is settled before v and distance_u + length_uv <= distance_v * (1 + equal_length).
// Dense pools of up to 512 nodes, O(n^3) and vectorised: all distances first. Others: O(edges log n) a source, by
// hops O(edges), and O(edges) memory a thread; a pool of more than 512 sources is shared by the threads.
// Thread-safe; a pool's result depends on nothing but the pool and the options. Throws Error on malformed input,
// Stopped where `stop` is set.
PYFAST_API void betweenness(const Graphs& graphs, const BetweennessOptions& options, std::span<float> centrality);

}  // namespace pyfast
