// The ops of pools and their graphs.
#include "op_calls.hpp"
#include "pyfast/cuda/evidence_graph.hpp"
#include "pyfast/cuda/graph_rank.hpp"
#include "pyfast/cuda/pagerank.hpp"
#include "pyfast/cuda/weighted_degree.hpp"

namespace {

using namespace driver;
using pyfast::EdgeWeight;
using namespace pyfast::cuda;

// Whether indptr has 64 bits; indptr; whether indices have; indices, weights, terms.
pyfast::Forward forward(Arguments& a) {
    pyfast::Forward x;
    const bool wide = a.integer() != 0;
    wide ? static_cast<void>(x.indptr64 = a.array<const std::int64_t>())
         : static_cast<void>(x.indptr32 = a.array<const std::int32_t>());
    a.integer() != 0 ? static_cast<void>(x.indices64 = a.array<const std::int64_t>())
                     : static_cast<void>(x.indices = a.array<const std::int32_t>());
    x.weights = a.array<const float>();
    x.terms = a.integer();
    return x;
}

Bounds bounds(Arguments& a) {
    const std::int64_t documents = a.integer();
    const std::int64_t pairs = a.integer();
    return {documents, pairs, a.integer()};
}

void weighted_degree_workspace_(Arguments& a) { give(a, weighted_degree_workspace(a.integer<std::size_t>())); }

void weighted_degree_(Arguments& a) {
    const auto x = forward(a);
    const auto pools = ragged<std::int32_t>(a);
    const auto weight = a.integer<EdgeWeight>();
    const auto degree = a.array<float>();
    weighted_degree(x, pools, weight, degree, queue(a));
}

void degree_rank_(Arguments& a) {
    const auto x = forward(a);
    const auto pools = ragged<std::int32_t>(a);
    const auto semantic = a.array<const float>();
    const auto weight = a.integer<EdgeWeight>();
    const auto alpha = static_cast<float>(a.real());
    const auto degree = a.array<float>();
    const auto score = a.array<float>();
    degree_rank(x, pools, semantic, weight, alpha, degree, score, queue(a));
}

void pool_bounds_(Arguments& a) {
    const auto x = forward(a);
    const auto pools = ragged<std::int32_t>(a);
    const auto found = a.array<std::int64_t>();
    pool_bounds(x, pools, found, queue(a));
}

void graph_rank_(Arguments& a) {
    const auto semantic = a.array<const float>();
    const auto structural = a.array<const float>();
    const auto offsets = a.array<const std::int64_t>();
    const auto alpha = static_cast<float>(a.real());
    const auto score = a.array<float>();
    graph_rank(semantic, structural, offsets, alpha, score, queue(a));
}

pyfast::EvidenceGraphOptions graph_options(Arguments& a) {
    pyfast::EvidenceGraphOptions options;
    options.weight = a.integer<EdgeWeight>();
    options.threshold = static_cast<float>(a.real());
    if (const std::int64_t k = a.integer(); k != 0) {
        options.top_k = k;
    }
    return options;
}

void evidence_graph_workspace_(Arguments& a) {
    const auto pools = a.integer<std::size_t>();
    const auto nodes = a.integer<std::size_t>();
    const Bounds limits = bounds(a);
    give(a, evidence_graph_workspace(pools, nodes, limits));
}

// Both steps, with room for as many edges as there can be.
void evidence_graph_(Arguments& a) {
    const auto x = forward(a);
    const auto pools = ragged<std::int32_t>(a);
    const auto masked = ragged<std::int32_t>(a);
    const auto options = graph_options(a);
    const Bounds limits = bounds(a);
    const auto indptr = a.array<std::int64_t>();
    const auto indices = a.array<std::int32_t>();
    const auto weights = a.array<float>();
    const Queue q = queue(a);
    evidence_graph_count(x, pools, masked, options, limits, indptr, q);
    evidence_graph_fill(pools, options, limits, indptr, indices, weights, q);
}

void pagerank_workspace_(Arguments& a) {
    const auto nodes = a.integer<std::size_t>();
    const auto edges = a.integer<std::size_t>();
    give(a, pagerank_workspace(nodes, edges));
}

void pagerank_(Arguments& a) {
    pyfast::Graphs graphs;
    graphs.pool_offsets = a.array<const std::int64_t>();
    graphs.indptr = a.array<const std::int64_t>();
    graphs.indices = a.array<const std::int32_t>();
    graphs.weights = a.array<const float>();
    const auto personalization = a.array<const float>();
    pyfast::PageRankOptions options;
    options.damping = a.real();
    options.max_iterations = a.integer<std::int64_t>();
    const auto rank = a.array<float>();
    const auto converged = a.array<std::uint8_t>();
    pagerank(graphs, personalization, options, rank, converged, queue(a));
}

}  // namespace

void driver::add_pool_calls(Calls& all) {
    all["degree_rank"] = degree_rank_;
    all["evidence_graph"] = evidence_graph_;
    all["evidence_graph_workspace"] = evidence_graph_workspace_;
    all["graph_rank"] = graph_rank_;
    all["pagerank"] = pagerank_;
    all["pagerank_workspace"] = pagerank_workspace_;
    all["pool_bounds"] = pool_bounds_;
    all["weighted_degree"] = weighted_degree_;
    all["weighted_degree_workspace"] = weighted_degree_workspace_;
}
