#include "pyfast/graphs.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "multiversion.hpp"
#include "pyfast/error.hpp"
#include "pyfast/pools.hpp"

namespace pyfast {

namespace {

struct Faults {
    std::size_t descents;  // indices that are not above the one before, wherever their rows begin
    bool weight;
};

// They run over every edge: vectors of 16, the rest one by one.
PYFAST_MULTIVERSION Faults find_faults(const std::int32_t* indices, const float* weights, std::size_t n) {
    constexpr std::size_t lanes = 16;
    using Ints [[gnu::vector_size(lanes * sizeof(std::int32_t))]] = std::int32_t;
    using Floats [[gnu::vector_size(lanes * sizeof(float))]] = float;
    constexpr float largest = std::numeric_limits<float>::max();
    Ints descending{};
    Ints usable = Ints{} - 1;
    std::size_t e = 1;
    for (; e + lanes <= n; e += lanes) {
        Ints here;
        Ints before;
        Floats w;
        std::memcpy(&here, indices + e, sizeof here);
        std::memcpy(&before, indices + e - 1, sizeof before);
        std::memcpy(&w, weights + e, sizeof w);
        descending -= here <= before;
        usable &= (w >= 0.0f) & (w <= largest);
    }
    Faults faults{0, n > 0 && !(weights[0] >= 0.0f && weights[0] <= largest)};
    for (; e < n; ++e) {
        faults.descents += indices[e] <= indices[e - 1] ? 1 : 0;
        faults.weight |= !(weights[e] >= 0.0f && weights[e] <= largest);
    }
    for (std::size_t v = 0; v < lanes; ++v) {
        faults.descents += static_cast<std::size_t>(descending[v]);
        faults.weight |= usable[v] == 0;
    }
    return faults;
}

}  // namespace

void check_graphs(const Graphs& graphs) {
    if (graphs.indices.size() != graphs.weights.size()) {
        throw Error("g.weights: " + std::to_string(graphs.weights.size()) + " for " +
                    std::to_string(graphs.indices.size()) + " indices");
    }
    check_offsets(graphs.indptr, graphs.indices.size(), "g.indptr");
    check_offsets(graphs.pool_offsets, graphs.nodes(), "g.pool_offsets");
}

PoolEdges checked_pool(const Graphs& graphs, std::size_t p) {
    const auto first = static_cast<std::size_t>(graphs.pool_offsets[p]);
    const auto n = static_cast<std::size_t>(graphs.pool_offsets[p + 1]) - first;
    const auto indptr = graphs.indptr.subspan(first, n + 1);
    const auto begin = static_cast<std::size_t>(indptr.front());
    const auto count = static_cast<std::size_t>(indptr.back()) - begin;
    const PoolEdges pool{indptr, graphs.indices.subspan(begin, count), graphs.weights.subspan(begin, count)};

    const Faults faults = find_faults(pool.indices.data(), pool.weights.data(), count);
    if (faults.weight) {
        throw Error("g.weights: a weight of pool " + std::to_string(p) + " is negative, infinite or NaN");
    }
    // Within rows indices rise, so that they may only fall where a row begins; and then a row's first and last
    // tell whether all of it lies in the pool.
    std::size_t allowed = 0;
    bool inside = true;
    for (std::size_t v = 0; v < n; ++v) {
        const std::size_t at = pool.begin(v);
        const std::size_t end = pool.begin(v + 1);
        if (at < end) {
            allowed += at > 0 && pool.indices[at] <= pool.indices[at - 1] ? 1 : 0;
            inside &= pool.indices[at] >= 0 && static_cast<std::size_t>(pool.indices[end - 1]) < n;
        }
    }
    if (!inside || faults.descents != allowed) {
        throw Error("g.indices: in pool " + std::to_string(p) +
                    " a row is not strictly increasing within 0 to " + std::to_string(n) +
                    " - 1; indices count within the pool, each at most once a row");
    }
    return pool;
}

}  // namespace pyfast
