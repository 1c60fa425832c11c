#include "pyfast/fuse.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "checked_offsets.hpp"
#include "pyfast/error.hpp"

namespace pyfast {

namespace {

// Works in place and in float, so that a list gets the same numbers wherever it is normalised.
void normalise(std::span<float> scores) {
    if (scores.empty()) {
        return;
    }
    const auto [lowest, highest] = std::minmax_element(scores.begin(), scores.end());
    const float low = *lowest;
    const float range = *highest - low;
    if (!std::isfinite(range)) {
        throw Error("semantic: the highest and the lowest score of a list are too far apart");
    }
    std::transform(scores.begin(), scores.end(), scores.begin(),
                   // + 0 turns -0 into 0
                   [&](float score) { return range > 0.0f ? (score - low) / range + 0.0f : 1.0f; });
}

}  // namespace

RankedPools fuse(std::span<const std::int64_t> list_offsets, const Pools& lists, std::span<const float> scores,
                 std::int64_t k) {
    const auto offsets = checked_offsets(lists.offsets, lists.values.size(), "pool_offsets");
    const auto groups = checked_offsets(list_offsets, lists.size(), "list_offsets");
    if (scores.size() != lists.values.size()) {
        throw Error("semantic: must hold one number per document of the lists");
    }
    // A copy, because the keys of a sort must not change.
    const std::vector<std::int32_t> documents(lists.values.begin(), lists.values.end());
    std::vector<float> normalised(scores.begin(), scores.end());
    check_finite(normalised, "semantic");
    if (k < 1) {
        throw Error("k: must be at least 1");
    }
    for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
        const auto first = static_cast<std::size_t>(offsets[i]);
        normalise(std::span(normalised).subspan(first, static_cast<std::size_t>(offsets[i + 1]) - first));
    }
    RankedPools out;
    std::vector<std::size_t> ranked;       // the entries of a pool's lists, best first
    std::vector<std::size_t> by_document;  // their ranks, grouped by document
    std::vector<std::uint8_t> repeated;    // by rank: whether the document has occurred before
    for (std::size_t p = 0; p + 1 < groups.size(); ++p) {
        const auto first = static_cast<std::size_t>(offsets[static_cast<std::size_t>(groups[p])]);
        const auto last = static_cast<std::size_t>(offsets[static_cast<std::size_t>(groups[p + 1])]);
        ranked.resize(last - first);
        std::iota(ranked.begin(), ranked.end(), first);
        std::stable_sort(ranked.begin(), ranked.end(),
                         [&](std::size_t a, std::size_t b) { return normalised[a] > normalised[b]; });
        const auto document = [&](std::size_t rank) { return documents[ranked[rank]]; };
        by_document.resize(ranked.size());
        std::iota(by_document.begin(), by_document.end(), std::size_t{0});
        std::sort(by_document.begin(), by_document.end(), [&](std::size_t a, std::size_t b) {
            return document(a) < document(b) || (document(a) == document(b) && a < b);
        });
        repeated.assign(ranked.size(), 0);
        for (std::size_t i = 1; i < by_document.size(); ++i) {
            repeated[by_document[i]] = document(by_document[i]) == document(by_document[i - 1]) ? 1 : 0;
        }
        std::int64_t kept = 0;
        for (std::size_t rank = 0; rank < ranked.size() && kept < k; ++rank) {
            if (repeated[rank] == 0) {
                out.documents.push_back(document(rank));
                out.scores.push_back(normalised[ranked[rank]]);
                ++kept;
            }
        }
        out.offsets.push_back(static_cast<std::int64_t>(out.documents.size()));
    }
    return out;
}

}  // namespace pyfast
