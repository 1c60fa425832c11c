#include "pyfast/prune.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "checked_offsets.hpp"
#include "pyfast/error.hpp"
#include "pyfast/pools.hpp"

namespace pyfast {

Pruned prune(std::span<const float> score, std::span<const std::uint8_t> is_table,
             std::span<const std::int64_t> pool_offsets, const PruneOptions& options) {
    const auto offsets = checked_offsets(pool_offsets, score.size(), "pool_offsets");
    // a copy, because the keys of a sort must not change
    const std::vector<float> scores(score.begin(), score.end());
    check_finite(scores, "score");
    if (is_table.size() != score.size()) {
        throw Error("is_table: must hold as many flags as there are scores");
    }
    if (options.min_nodes < 0 || options.max_nodes < std::max<std::int64_t>(options.min_nodes, 1)) {
        throw Error("min_nodes, max_nodes: must satisfy 0 <= min_nodes <= max_nodes and max_nodes >= 1");
    }
    if (options.per_kind < 0) {
        throw Error("per_kind: must not be negative");
    }
    Pruned out;
    out.offsets.push_back(0);
    std::vector<std::int32_t> order;
    std::vector<std::uint8_t> secured;  // by rank: whether it is among the best `per_kind` of its kind
    for (std::size_t p = 0; p + 1 < offsets.size(); ++p) {
        const auto begin = static_cast<std::size_t>(offsets[p]);
        const auto n = static_cast<std::size_t>(offsets[p + 1]) - begin;
        const auto score_of = [&](std::int32_t v) { return scores[begin + static_cast<std::size_t>(v)]; };
        order.resize(n);
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(),  // stable: equal scores stay in the order of retrieval
                         [&](std::int32_t a, std::int32_t b) { return score_of(a) > score_of(b); });
        double total = 0.0;
        for (std::size_t v = begin; v < begin + n; ++v) {
            total += static_cast<double>(scores[v]);
        }
        // n * score is exact, and so is the sum of equal scores. A mean would be rounded, and equal scores could
        // fall below it.
        const auto at_least_mean = [&](float s) {
            return static_cast<double>(s) * static_cast<double>(n) >= total;
        };
        const std::size_t max_nodes = std::min(n, static_cast<std::size_t>(options.max_nodes));
        std::size_t good = std::min(n, static_cast<std::size_t>(options.min_nodes));
        while (good < max_nodes && at_least_mean(score_of(order[good]))) {
            ++good;
        }
        std::array<std::int64_t, 2> of_kind{0, 0};
        std::size_t kept = 0;
        secured.assign(n, 0);
        for (std::size_t rank = 0; rank < n && kept < max_nodes; ++rank) {
            const std::size_t kind = is_table[begin + static_cast<std::size_t>(order[rank])] != 0 ? 1 : 0;
            secured[rank] = of_kind[kind]++ < options.per_kind ? 1 : 0;
            kept += secured[rank];
        }
        for (std::size_t rank = 0; rank < n; ++rank) {
            const bool joins = secured[rank] == 0 && rank < good && kept < max_nodes;
            kept += joins ? 1 : 0;
            if (joins || secured[rank] != 0) {
                out.nodes.push_back(order[rank]);
            }
        }
        out.offsets.push_back(static_cast<std::int64_t>(out.nodes.size()));
    }
    return out;
}

}  // namespace pyfast
