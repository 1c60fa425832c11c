// betweenness: the share of shortest paths of a pool's graph that lead through a node.
#pragma once

#include <span>

#include "pyfast/api.hpp"
#include "pyfast/graphs.hpp"

namespace pyfast {

enum class EdgeLength {
    inverse,  // 1 / weight: weights are strengths
    hops,     // 1
};

// Two paths count as equally long where their lengths differ by no more than this, relatively.
constexpr double equal_length = 1e-10;

// centrality[v], for every node v of every pool of n nodes:
//
//   sum over ordered pairs (s, t), s != v != t, of (shortest paths s to t through v) / (shortest paths s to t),
//
// divided by (n - 1)(n - 2); 0 where n <= 2. Pairs without a path count 0, edges of weight 0 and self-loops do
// not.
//
// Brandes, in double. From one source: nodes are settled by distance, as Dijkstra does it, and the edge (u, v) is
// on a shortest path where u is settled before v and distance_u + length_uv <= distance_v * (1 + equal_length).
// Dense pools of up to 512 nodes, O(n^3) and vectorised: all distances first. Others: O(edges log n) a source,
// O(edges) memory a thread; a pool of more than 512 nodes is shared by the threads. Thread-safe; a pool's result
// depends on nothing but the pool. Throws Error on malformed input.
PYFAST_API void betweenness(const Graphs& graphs, EdgeLength length, int threads, std::span<float> centrality);

}  // namespace pyfast
