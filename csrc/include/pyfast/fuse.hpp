// fuse: merges several ranked lists into one.
#pragma once

#include <cstdint>
#include <span>

#include "pyfast/api.hpp"
#include "pyfast/pools.hpp"

namespace pyfast {

// Pool p of the result has the `k` best documents of the lists list_offsets[p] .. list_offsets[p + 1], each
// document once.
//
// Scores of different queries cannot be compared, so each list is min-max normalised (all equal: 1). A document
// keeps its best score. If scores are equal, the earlier list comes first, then the list's order. `scores` has one
// number for each entry of the lists. Time: O(entries * log entries) for each pool. Thread-safe; it runs on one
// thread. Throws Error if offsets do not fit, if scores are not finite, if a list's scores differ by more than a
// float can hold, and if k is below 1.
PYFAST_API RankedPools fuse(std::span<const std::int64_t> list_offsets, const Pools& lists,
                            std::span<const float> scores, std::int64_t k);

}  // namespace pyfast
