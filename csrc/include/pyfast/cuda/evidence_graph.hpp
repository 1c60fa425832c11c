// evidence_graph on a GPU, in two steps: count the edges, then write them to the caller's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pyfast/api.hpp"
#include "pyfast/cuda/device.hpp"
#include "pyfast/cuda/pools.hpp"
#include "pyfast/evidence_graph.hpp"

namespace pyfast::cuda {

// Bytes: 4 * bounds.pairs for the weights between all documents of each pool, 24 * bounds.entries for the entries
// by term, and a little more.
PYFAST_API std::size_t evidence_graph_workspace(std::size_t pools, std::size_t nodes, const Bounds& bounds);

// The indptr [N + 1] of the graph that pyfast::evidence_graph returns for the same options. Its last number is the
// number of edges. The weights are then in the workspace, for evidence_graph_fill.
//
// A block sorts the entries of a pool by term, with a hash table in shared memory. Then a warp computes each row
// of weights: term by term, its lanes add the term's share to each document that has the term. A weight is the
// same sum in both directions, so the graph is symmetric bit for bit. Sums are float, within a relative 1e-5 of
// the CPU's. So the two graphs can differ in an edge whose weight is that close to the threshold or to the k-th
// strongest weight. Masks should be short, because each term of a row is searched for in the list.
//
// All spans are device memory. Throws Error for options that are out of range, and for those that do not exist on
// a GPU: a function of the caller, and Idf::pool. Faults: offsets, documents, rows, weights, masked, bounds.
PYFAST_API void evidence_graph_count(const Forward& x, const Pools& pools, const Ragged<std::int32_t>& masked,
                                     const EvidenceGraphOptions& options, const Bounds& bounds,
                                     std::span<std::int64_t> indptr, const Queue& queue);

// The edges, for the indptr of evidence_graph_count, with the same pools, options, bounds and workspace. `indices`
// and `weights` must have room for all edges: bounds.pairs entries are always enough, without reading the indptr.
// Fault: bounds, if there is not enough room.
PYFAST_API void evidence_graph_fill(const Pools& pools, const EvidenceGraphOptions& options, const Bounds& bounds,
                                    std::span<const std::int64_t> indptr, std::span<std::int32_t> indices,
                                    std::span<float> weights, const Queue& queue);

}  // namespace pyfast::cuda
