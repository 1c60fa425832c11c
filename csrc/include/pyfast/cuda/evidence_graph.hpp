// evidence_graph on a GPU, in two steps: the edges are counted, then written to memory of the caller's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pyfast/api.hpp"
#include "pyfast/cuda/device.hpp"
#include "pyfast/cuda/pools.hpp"
#include "pyfast/evidence_graph.hpp"

namespace pyfast::cuda {

// Bytes: the weights between all documents of each pool, 4 * bounds.pairs, and little more.
PYFAST_API std::size_t evidence_graph_workspace(std::size_t pools, std::size_t nodes, const Bounds& bounds);

// Of the graph that pyfast::evidence_graph gives with the same options the indptr [N + 1]; its last number is that
// of the edges. The weights are in the workspace then, for evidence_graph_fill.
//
// A warp has a document's terms in a hash table in shared memory, and goes through the pool's rows of documents
// with higher numbers: a weight is the sum of a warp's lanes, in one order, and stands for both directions, so
// that the graph is symmetric bit for bit. Sums are in float, within 1e-5 of the CPU's relatively; so an edge
// whose weight is that near to the threshold, or to the k-th strongest, may be in the one graph and not in the
// other. Masks are short lists: each term of a row is looked for in its pool's.
//
// All spans are device memory. Throws Error on options that are out of range, and on those that a GPU has not: a
// function of the caller's, and Idf::pool. Faults: offsets, documents, rows, weights, masked, bounds.
PYFAST_API void evidence_graph_count(const Forward& x, const Pools& pools, const Ragged<std::int32_t>& masked,
                                     const EvidenceGraphOptions& options, const Bounds& bounds,
                                     std::span<std::int64_t> indptr, const Queue& queue);

// The edges, to the indptr of evidence_graph_count and with its pools, options, bounds and workspace. `indices`
// and `weights` must have room for all edges, and may have more: bounds.pairs of them are always enough, without
// looking at the indptr. Fault: bounds, where they have not.
PYFAST_API void evidence_graph_fill(const Pools& pools, const EvidenceGraphOptions& options, const Bounds& bounds,
                                    std::span<const std::int64_t> indptr, std::span<std::int32_t> indices,
                                    std::span<float> weights, const Queue& queue);

}  // namespace pyfast::cuda
