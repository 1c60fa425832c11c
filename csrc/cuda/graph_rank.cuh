// graph_rank of one pool, computed by a block.
#pragma once

#include "gpu.cuh"

namespace pyfast::cuda {

struct MinMax {
    float low;
    float high;
};

// The minimum and maximum of scores[first .. last), for all threads of the block. `parts` is shared memory with
// one number for each warp.
__device__ inline MinMax block_min_max(const float* scores, std::int64_t first, std::int64_t last, float* parts) {
    float low = scores[first];
    float high = low;
    for (std::int64_t v = first + threadIdx.x; v < last; v += blockDim.x) {
        low = scores[v] < low ? scores[v] : low;
        high = high < scores[v] ? scores[v] : high;
    }
    const float start = scores[first];
    low = block_reduce(low, parts, [](float n) { return warp_min(n); }, start);
    high = block_reduce(high, parts, [](float n) { return warp_max(n); }, start);
    return {low, high};
}

// Equation 1 for the pool first .. last, computed as on the CPU. All threads of a block call it. A pool may be
// empty.
__device__ inline void rank_pool(const float* semantic, const float* structural, std::int64_t first,
                                 std::int64_t last, float alpha, float* score, float* parts) {
    if (first == last) {
        return;  // the whole block returns
    }
    const MinMax sem = block_min_max(semantic, first, last, parts);
    const MinMax str = block_min_max(structural, first, last, parts);
    const double sem_range = static_cast<double>(sem.high) - static_cast<double>(sem.low);
    const double str_range = static_cast<double>(str.high) - static_cast<double>(str.low);
    __syncthreads();  // all threads have read the scores; `score` may be the same memory
    for (std::int64_t v = first + threadIdx.x; v < last; v += blockDim.x) {
        const double s = sem_range > 0.0 ? (semantic[v] - static_cast<double>(sem.low)) / sem_range : 1.0;
        const double t = str_range > 0.0 ? (structural[v] - static_cast<double>(str.low)) / str_range : 1.0;
        score[v] = static_cast<float>(s * (1.0 + (1.0 - static_cast<double>(alpha)) * t));
    }
}

// On the host: checks that the scores are finite, and that alpha is valid.
void check_scores(const float* scores, std::size_t n, const Queue& queue);
void check_alpha(float alpha);

}  // namespace pyfast::cuda
