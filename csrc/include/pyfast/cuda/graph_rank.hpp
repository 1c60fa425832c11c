// graph_rank on a GPU: equation 1 of N2N-GQA, from structural scores, or from the forward index in one kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pyfast/api.hpp"
#include "pyfast/cuda/device.hpp"
#include "pyfast/cuda/weighted_degree.hpp"

namespace pyfast::cuda {

// The scores of pyfast::graph_rank, bit for bit. All spans are device memory. Needs no workspace. Faults: offsets,
// scores.
PYFAST_API void graph_rank(std::span<const float> semantic, std::span<const float> structural,
                           std::span<const std::int64_t> pool_offsets, float alpha, std::span<float> score,
                           const Queue& queue);

// weighted_degree and graph_rank in one: reads the rows of a pool, and writes its degrees and scores. Its
// workspace is that of weighted_degree, and it sets the faults of both.
PYFAST_API void degree_rank(const Forward& x, const Pools& pools, std::span<const float> semantic,
                            EdgeWeight weight, float alpha, std::span<float> degree, std::span<float> score,
                            const Queue& queue);

}  // namespace pyfast::cuda
