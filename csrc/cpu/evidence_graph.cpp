#include "pyfast/evidence_graph.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <mutex>
#include <numeric>
#include <string>

#include "parallel.hpp"
#include "pool_graph.hpp"
#include "pyfast/error.hpp"
#include "reused.hpp"

namespace pyfast {

namespace {

// Edges in the order in which one thread found them.
struct EdgeList {
    Buffer<std::int32_t> indices;
    Buffer<float> weights;
    std::size_t used = 0;

    void make_room(std::size_t more) {
        if (used + more <= indices.size) {
            return;
        }
        const std::size_t capacity = std::max(2 * indices.size, used + more);
        Buffer<std::int32_t> wider_indices(capacity);
        Buffer<float> wider_weights(capacity);
        std::copy_n(indices.data.get(), used, wider_indices.data.get());
        std::copy_n(weights.data.get(), used, wider_weights.data.get());
        indices = std::move(wider_indices);
        weights = std::move(wider_weights);
    }
};

struct Workspace {
    PoolGraph graph;
    EdgeList edges;
    std::vector<std::int32_t> order;

    void trim() {
        graph.trim();
        edges.used = 0;
        if (edges.indices.size > (std::size_t{4} << 20)) {
            edges = {};
        }
    }
};

// Appends the edges of node i and returns their number.
std::size_t append_row(Workspace& space, std::size_t i, const EvidenceGraphOptions& options) {
    const std::span<float> row = space.graph.row(i);
    space.edges.make_room(row.size());
    std::int32_t* indices = space.edges.indices.data.get() + space.edges.used;
    float* weights = space.edges.weights.data.get() + space.edges.used;
    row[i] = -1.0f;  // below any threshold
    std::size_t kept = 0;
    for (std::size_t j = 0; j < row.size(); ++j) {
        indices[kept] = static_cast<std::int32_t>(j);
        weights[kept] = row[j];
        kept += row[j] > options.threshold ? 1 : 0;
    }
    if (options.top_k && kept > static_cast<std::size_t>(*options.top_k)) {
        const auto k = static_cast<std::size_t>(*options.top_k);
        space.order.assign(indices, indices + kept);
        const auto stronger = [&](std::int32_t a, std::int32_t b) {
            const float wa = row[static_cast<std::size_t>(a)];
            const float wb = row[static_cast<std::size_t>(b)];
            return wa != wb ? wa > wb : a < b;
        };
        const auto cut = space.order.begin() + static_cast<std::ptrdiff_t>(k);
        std::nth_element(space.order.begin(), cut, space.order.end(), stronger);
        std::sort(space.order.begin(), cut);
        kept = k;
        for (std::size_t e = 0; e < kept; ++e) {
            indices[e] = space.order[e];
            weights[e] = row[static_cast<std::size_t>(space.order[e])];
        }
    }
    space.edges.used += kept;
    return kept;
}

}  // namespace

Graph evidence_graph(const Forward& x, const Pools& pools, const Ragged<std::int32_t>& masked,
                     const EvidenceGraphOptions& options) {
    check_offsets(pools.offsets, pools.values.size(), "pool_offsets");
    if (!masked.offsets.empty()) {
        check_offsets(masked.offsets, masked.values.size(), "mask_terms");
        if (masked.size() != pools.size()) {
            throw Error("mask_terms: " + std::to_string(masked.size()) + " lists for " +
                        std::to_string(pools.size()) + " pools");
        }
    }
    if (!(options.threshold >= 0.0f) || std::isinf(options.threshold)) {
        throw Error("threshold: must be a finite number of at least 0");
    }
    if (options.top_k && *options.top_k < 1) {
        throw Error("top_k: must be at least 1");
    }
    const std::size_t nodes = pools.values.size();
    Graph out;
    out.indptr = Buffer<std::int64_t>(nodes + 1);
    std::int64_t* indptr = out.indptr.data.get();
    indptr[0] = 0;

    struct Place {
        const Workspace* space = nullptr;
        std::size_t begin = 0;
    };
    std::vector<Place> places(pools.size());
    std::deque<Reused<Workspace>> spaces;  // with the edges, until they are copied
    std::mutex guard;
    const auto make = [&]() -> Workspace* {
        const std::lock_guard lock(guard);
        return &*spaces.emplace_back();
    };
    parallel_for(pools.size(), options.threads, 1, make, [&](Workspace* space, std::size_t p) {
        const auto documents = pools[p];
        const auto mask = masked.offsets.empty() ? std::span<const std::int32_t>{} : masked[p];
        space->graph.terms.gather(x, documents, mask, options.idf);
        space->graph.prepare(options.weight, options.function);
        places[p] = {space, space->edges.used};
        const auto first = static_cast<std::size_t>(pools.offsets[p]);
        for (std::size_t i = 0; i < documents.size(); ++i) {
            indptr[first + i + 1] = static_cast<std::int64_t>(append_row(*space, i, options));
        }
    });

    std::partial_sum(indptr, indptr + nodes + 1, indptr);
    const auto edges = static_cast<std::size_t>(indptr[nodes]);
    out.indices = Buffer<std::int32_t>(edges);
    out.weights = Buffer<float>(edges);
    parallel_for(
        pools.size(), options.threads, 16, [] { return 0; },
        [&](int, std::size_t p) {
            const auto begin = indptr[pools.offsets[p]];
            const auto count = static_cast<std::size_t>(indptr[pools.offsets[p + 1]] - begin);
            const auto& edges_of = places[p].space->edges;
            std::copy_n(edges_of.indices.data.get() + places[p].begin, count, out.indices.data.get() + begin);
            std::copy_n(edges_of.weights.data.get() + places[p].begin, count, out.weights.data.get() + begin);
        });
    return out;
}

}  // namespace pyfast
