// graph_rank: N2N-GQA's equation 1, semantic and structural scores in one.
#pragma once

#include <cstdint>
#include <span>

#include "pyfast/api.hpp"

namespace pyfast {

// score = sem * (1 + (1 - alpha) * struct), both min-max normalised over their pool (all equal: 1).
//
// All arrays but `pool_offsets` (P + 1) hold a number per node, those of a pool side by side; `score` may be one
// of the other two. alpha in [0, 1]; 1 leaves the normalised semantic score (the paper's ablation). O(nodes),
// computed in double and rounded once. Thread-safe; one thread's work. Throws Error on bad offsets, arrays of
// other lengths, scores that are not finite, and on another alpha.
PYFAST_API void graph_rank(std::span<const float> semantic, std::span<const float> structural,
                           std::span<const std::int64_t> pool_offsets, float alpha, std::span<float> score);

}  // namespace pyfast
