// fuse: several ranked lists as one.
#pragma once

#include <cstdint>
#include <span>

#include "pyfast/api.hpp"
#include "pyfast/pools.hpp"

namespace pyfast {

// Pool p of the result has the `k` best documents of the lists list_offsets[p] .. list_offsets[p + 1], each once.
//
// Scores of different queries do not compare, so they are min-max normalised per list (all equal: 1); a document
// keeps its best. Ties: the earlier list, then its order. `scores` holds a number per entry of the lists.
// O(entries * log entries) a pool. Thread-safe; one thread's work. Throws Error on offsets that do not fit, on
// scores that are not finite or of one list further apart than a float can say, and on a k below 1.
PYFAST_API RankedPools fuse(std::span<const std::int64_t> list_offsets, const Pools& lists,
                            std::span<const float> scores, std::int64_t k);

}  // namespace pyfast
