// graph_rank: N2N-GQA's equation 1, semantic and structural scores in one.
#pragma once

#include <cstdint>
#include <span>

namespace pyfast {

// score = sem * (1 + (1 - alpha) * struct), both min-max normalised over their pool (all equal: 1).
//
// alpha in [0, 1]; 1 leaves the normalised semantic score (the paper's ablation). Thread-safe.
void graph_rank(std::span<const float> semantic, std::span<const float> structural,
                std::span<const std::int64_t> pool_offsets, float alpha, std::span<float> score);

}  // namespace pyfast
