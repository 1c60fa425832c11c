#include "pyfast/graphs.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <string>

#include "multiversion.hpp"
#include "pyfast/error.hpp"
#include "pyfast/pools.hpp"

namespace pyfast {

namespace {

struct Faults {
    std::size_t descents;  // the number of indices that are not above the one before, across all rows
    bool weight;
};

// These loops read each edge. The bits of floats from 0 to the largest are ordered as integers; infinity, NaN and
// negative numbers come above them.
PYFAST_MULTIVERSION Faults find_faults(const std::int32_t* indices, const float* weights, std::size_t n) {
    constexpr std::size_t lanes = 16;
    using Ints [[gnu::vector_size(lanes * sizeof(std::int32_t))]] = std::int32_t;
    using Bits [[gnu::vector_size(lanes * sizeof(std::uint32_t))]] = std::uint32_t;
    constexpr auto minus_zero = std::bit_cast<std::uint32_t>(-0.0f);
    Ints descents{};
    Bits greatest{};
    std::size_t e = 1;
    for (; e + lanes <= n; e += lanes) {
        Ints here;
        Ints before;
        Bits bits;
        std::memcpy(&here, indices + e, sizeof here);
        std::memcpy(&before, indices + e - 1, sizeof before);
        std::memcpy(&bits, weights + e, sizeof bits);
        descents = here <= before ? descents + 1 : descents;
        bits = bits == minus_zero ? Bits{} : bits;
        greatest = bits > greatest ? bits : greatest;
    }
    std::size_t all_descents = 0;
    std::uint32_t worst = 0;
    const auto look = [&](std::uint32_t bits) { worst = std::max(worst, bits == minus_zero ? 0 : bits); };
    for (std::size_t v = 0; v < lanes; ++v) {
        all_descents += static_cast<std::size_t>(descents[v]);
        look(greatest[v]);
    }
    for (; e < n; ++e) {
        all_descents += indices[e] <= indices[e - 1] ? 1 : 0;
        look(std::bit_cast<std::uint32_t>(weights[e]));
    }
    if (n > 0) {
        look(std::bit_cast<std::uint32_t>(weights[0]));
    }
    return {all_descents, worst > std::bit_cast<std::uint32_t>(std::numeric_limits<float>::max())};
}

}  // namespace

void check_graphs(const Graphs& graphs) {
    if (graphs.indices.size() != graphs.weights.size()) {
        throw Error("g.weights: expected one for each index (" + std::to_string(graphs.indices.size()) +
                    "), got " + std::to_string(graphs.weights.size()));
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
    // Indices rise within a row, so they may fall only where a row begins. Then the first and the last index of a
    // row tell whether all of it is in the pool.
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
                    ", each row must ascend strictly, from 0 to below " + std::to_string(n) +
                    ", the pool's number of nodes");
    }
    return pool;
}

}  // namespace pyfast
