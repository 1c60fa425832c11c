// maxsim on a GPU: late interaction of ragged token vectors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pyfast/api.hpp"
#include "pyfast/cuda/device.hpp"
#include "pyfast/maxsim.hpp"

namespace pyfast::cuda {

// Bytes of the workspace for queries with this number of tokens in all.
PYFAST_API std::size_t maxsim_workspace(std::size_t query_tokens, std::size_t dimensions);

// How precisely products of `numbers` are computed.
enum class Precision {
    float32,   // the scores of pyfast::maxsim, bit for bit
    bfloat16,  // on tensor cores: numbers are rounded to bfloat16, and products added up in float32
};

// The scores of pyfast::maxsim. All spans are device memory. Faults: offsets, pairs, scores.
PYFAST_API void maxsim(std::span<const float> queries, std::span<const std::int64_t> query_offsets,
                       const TokenVectors& documents, std::span<const std::int64_t> pairs, std::int64_t dimensions,
                       Precision precision, std::span<float> scores, const Queue& queue);

}  // namespace pyfast::cuda
