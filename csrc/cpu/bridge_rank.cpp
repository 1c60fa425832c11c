#include "pyfast/bridge_rank.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "checked_offsets.hpp"
#include "parallel.hpp"
#include "pool_graph.hpp"
#include "pyfast/error.hpp"
#include "reused.hpp"

namespace pyfast {

namespace {

struct Edge {
    std::int32_t from;
    std::int32_t to;
    double weight;
};

struct Workspace {
    PoolGraph graph;
    std::vector<std::int64_t> keys;  // of the nearest nodes, the nearest first
    std::vector<std::int32_t> order;
    std::vector<Edge> chosen;  // for each node in turn, the edges to its nearest nodes
    std::vector<std::size_t> chosen_begin;
    std::vector<Edge> choosing;  // for each node in turn, the edges to the nodes that have it among their nearest
    std::vector<std::size_t> place;
    std::vector<Edge> edges;  // both directions of each kept edge, sorted by node and then by the other end
    std::vector<double> semantic;
    std::vector<double> restart;
    std::vector<double> degree;
    std::vector<double> rank;
    std::vector<double> next;

    void trim() { graph.trim(); }
};

// The k nodes nearest to node i, in the pool's order. If weights are equal, the earlier node comes first.
//
// A key has the bits of a weight, then of the node. The bits of floats above 0 have the order of the floats, so
// one comparison decides.
void nearest(Workspace& space, std::span<const float> row, std::size_t i, std::size_t k) {
    constexpr std::int64_t no_edge = 0xFFFFFFFF;  // at least the key of any weight that is not above 0
    space.keys.assign(std::min(k, row.size()), no_edge);
    std::int64_t* const keys = space.keys.data();
    const std::size_t last = space.keys.size() - 1;
    for (std::size_t j = 0; j < row.size(); ++j) {
        const std::int64_t key = static_cast<std::int64_t>(std::bit_cast<std::int32_t>(row[j])) * (no_edge + 1) +
                                 (no_edge - static_cast<std::int64_t>(j));
        if (key > keys[last] && j != i) {
            std::size_t place = last;
            for (; place > 0 && keys[place - 1] < key; --place) {
                keys[place] = keys[place - 1];
            }
            keys[place] = key;
        }
    }
    space.order.clear();
    for (const std::int64_t key : space.keys) {
        if (key > no_edge) {
            space.order.push_back(static_cast<std::int32_t>(no_edge - (key & no_edge)));
        }
    }
    std::sort(space.order.begin(), space.order.end());
}

// Squares the weights, and keeps an edge if it is among the k strongest of either of its ends.
void strongest_edges(Workspace& space, std::size_t k) {
    const std::size_t n = space.graph.terms.documents();
    space.chosen.clear();
    space.chosen_begin.assign(1, 0);
    space.place.assign(n + 2, 0);
    for (std::size_t i = 0; i < n; ++i) {
        const std::span<const float> row = space.graph.row(i);
        nearest(space, row, i, k);
        for (const std::int32_t j : space.order) {
            const auto w = static_cast<double>(row[static_cast<std::size_t>(j)]);
            space.chosen.push_back({static_cast<std::int32_t>(i), j, w * w});
            ++space.place[static_cast<std::size_t>(j) + 2];
        }
        space.chosen_begin.push_back(space.chosen.size());
    }
    // Collect, for each node, the nodes that chose it, in the pool's order.
    std::partial_sum(space.place.begin(), space.place.end(), space.place.begin());
    space.choosing.resize(space.chosen.size());
    for (const Edge& edge : space.chosen) {
        space.choosing[space.place[static_cast<std::size_t>(edge.to) + 1]++] = {edge.to, edge.from, edge.weight};
    }
    space.edges.clear();
    const auto earlier = [](const Edge& a, const Edge& b) { return a.to < b.to; };
    for (std::size_t i = 0; i < n; ++i) {
        const auto at = [](auto& edges, std::size_t e) { return edges.begin() + static_cast<std::ptrdiff_t>(e); };
        std::set_union(at(space.chosen, space.chosen_begin[i]), at(space.chosen, space.chosen_begin[i + 1]),
                       at(space.choosing, space.place[i]), at(space.choosing, space.place[i + 1]),
                       std::back_inserter(space.edges), earlier);
    }
}

void rank_pool(Workspace& space, std::span<const float> semantic, const BridgeRankOptions& options,
               std::span<float> score) {
    const std::size_t n = semantic.size();
    const auto [min, max] = std::minmax_element(semantic.begin(), semantic.end());
    const double low = *min;
    const double range = *max - low;
    space.semantic.resize(n);
    space.restart.resize(n);
    double total = 0.0;
    for (std::size_t v = 0; v < n; ++v) {
        space.semantic[v] = range > 0.0 ? (semantic[v] - low) / range : 1.0;
        space.restart[v] = std::pow(space.semantic[v], static_cast<double>(options.sharpness));
        total += space.restart[v];
    }
    for (double& r : space.restart) {
        r /= total;  // `total` is at least 1: the best semantic score is 1
    }
    space.degree.assign(n, 0.0);
    for (const Edge& edge : space.edges) {
        space.degree[static_cast<std::size_t>(edge.from)] += edge.weight;
    }
    for (Edge& edge : space.edges) {
        edge.weight /= space.degree[static_cast<std::size_t>(edge.from)];
    }
    // A node without edges restarts. Each step reduces the error by the factor `damping`. So the number of steps
    // is known in advance and the same for every pool.
    constexpr double tolerance = 1e-9;
    const auto damping = static_cast<double>(options.damping);
    const int steps = damping > 0.0 ? static_cast<int>(std::ceil(std::log(tolerance) / std::log(damping))) : 0;
    space.rank = space.restart;
    for (int step = 0; step < steps; ++step) {
        space.next.assign(n, 0.0);
        double stuck = 0.0;
        for (std::size_t v = 0; v < n; ++v) {
            stuck += space.degree[v] > 0.0 ? 0.0 : space.rank[v];
        }
        for (const Edge& edge : space.edges) {
            space.next[static_cast<std::size_t>(edge.to)] +=
                space.rank[static_cast<std::size_t>(edge.from)] * edge.weight;
        }
        for (std::size_t v = 0; v < n; ++v) {
            space.rank[v] = (1.0 - damping + damping * stuck) * space.restart[v] + damping * space.next[v];
        }
    }
    const double top = *std::max_element(space.rank.begin(), space.rank.end());
    const auto mix = static_cast<double>(options.mix);
    for (std::size_t v = 0; v < n; ++v) {
        score[v] = static_cast<float>((1.0 - mix) * space.semantic[v] + mix * space.rank[v] / top);
    }
}

}  // namespace

void bridge_rank(const Forward& x, const Pools& given, std::span<const float> semantic,
                 const Ragged<std::int32_t>& questions, const BridgeRankOptions& options, std::span<float> score) {
    const auto offsets = checked_offsets(given.offsets, given.values.size(), "pool_offsets");
    const Pools pools{offsets, given.values};
    const auto question_offsets = checked_offsets(questions.offsets, questions.values.size(), "question_terms");
    const Ragged<std::int32_t> question_terms{question_offsets, questions.values};
    if (question_terms.size() != pools.size()) {
        throw Error("question_terms: expected one list for each pool (" + std::to_string(pools.size()) +
                    "), got " + std::to_string(question_terms.size()));
    }
    if (semantic.size() != pools.values.size() || score.size() != pools.values.size()) {
        throw Error("semantic: must hold one score per node of the pools (" + std::to_string(pools.values.size()) +
                    ")");
    }
    check_finite(semantic, "semantic");
    if (options.edges < 1 || !(options.damping >= 0.0f && options.damping <= 0.99f) ||
        !(options.mix >= 0.0f && options.mix <= 1.0f) ||
        !(options.sharpness >= 0.0f && options.sharpness <= 64.0f)) {
        throw Error("expected edges >= 1, damping in [0, 0.99], mix in [0, 1] and sharpness in [0, 64]");
    }
    parallel_for(
        pools.size(), options.threads, 1, [] { return Reused<Workspace>(); },
        [&](Reused<Workspace>& reused, std::size_t p) {
            Workspace& space = *reused;
            const auto documents = pools[p];
            if (documents.empty()) {
                return;
            }
            space.graph.terms.gather(x, documents, question_terms[p]);
            space.graph.prepare(EdgeWeight::dot);
            strongest_edges(space, static_cast<std::size_t>(options.edges));
            const auto first = static_cast<std::size_t>(pools.offsets[p]);
            rank_pool(space, semantic.subspan(first, documents.size()), options,
                      score.subspan(first, documents.size()));
        });
}

}  // namespace pyfast
