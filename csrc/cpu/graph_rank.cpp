#include "pyfast/graph_rank.hpp"

#include <algorithm>

#include "checked_offsets.hpp"
#include "pyfast/error.hpp"
#include "pyfast/pools.hpp"

namespace pyfast {

void graph_rank(std::span<const float> semantic, std::span<const float> structural,
                std::span<const std::int64_t> pool_offsets, float alpha, std::span<float> score) {
    const auto offsets = checked_offsets(pool_offsets, semantic.size(), "pool_offsets");
    if (structural.size() != semantic.size() || score.size() != semantic.size()) {
        throw Error("structural: must hold as many numbers as semantic");
    }
    if (!(alpha >= 0.0f && alpha <= 1.0f)) {
        throw Error("alpha: must lie in [0, 1]");
    }
    check_finite(semantic, "semantic");
    check_finite(structural, "structural");
    for (std::size_t p = 0; p + 1 < offsets.size(); ++p) {
        const auto begin = static_cast<std::size_t>(offsets[p]);
        const auto end = static_cast<std::size_t>(offsets[p + 1]);
        if (begin == end) {
            continue;
        }
        const auto sems = semantic.subspan(begin, end - begin);
        const auto strs = structural.subspan(begin, end - begin);
        const auto [sem_min, sem_max] = std::minmax_element(sems.begin(), sems.end());
        const auto [str_min, str_max] = std::minmax_element(strs.begin(), strs.end());
        const double sem_low = *sem_min;
        const double str_low = *str_min;
        const double sem_range = *sem_max - sem_low;
        const double str_range = *str_max - str_low;
        for (std::size_t v = begin; v < end; ++v) {
            const double sem = sem_range > 0.0 ? (semantic[v] - sem_low) / sem_range : 1.0;
            const double str = str_range > 0.0 ? (structural[v] - str_low) / str_range : 1.0;
            score[v] = static_cast<float>(sem * (1.0 + (1.0 - static_cast<double>(alpha)) * str));
        }
    }
}

}  // namespace pyfast
