// graph_rank: equation 1 of N2N-GQA, which combines semantic and structural scores.
#pragma once

#include <cstdint>
#include <span>

#include "pyfast/api.hpp"

namespace pyfast {

// score = sem * (1 + (1 - alpha) * struct). Both are min-max normalised over their pool (all equal: 1).
//
// `pool_offsets` has P + 1 entries. All other arrays have one number for each node, pool after pool. `score` may
// be the same memory as one of the other two. alpha is in [0, 1]; with 1, the score is the normalised semantic
// score (the paper's ablation). Time: O(nodes), in double, rounded once. Thread-safe; it runs on one thread.
// Throws Error for bad offsets, arrays of other lengths, scores that are not finite, and an alpha out of range.
PYFAST_API void graph_rank(std::span<const float> semantic, std::span<const float> structural,
                           std::span<const std::int64_t> pool_offsets, float alpha, std::span<float> score);

}  // namespace pyfast
