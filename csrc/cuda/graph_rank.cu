#include <algorithm>

#include "graph_rank.cuh"
#include "pools.cuh"
#include "pyfast/cuda/graph_rank.hpp"
#include "pyfast/error.hpp"

namespace pyfast::cuda {

namespace {

constexpr int threads = 128;

__global__ void check_scores_kernel(const float* scores, std::int64_t n, std::int32_t* status) {
    for (std::int64_t v = thread_of_grid(); v < n; v += threads_of_grid()) {
        if (!isfinite(scores[v])) {
            report(status, Fault::scores);
        }
    }
}

__global__ void check_rank_kernel(RaggedArrays<float> semantic, const float* structural, std::int32_t* status) {
    for (std::int64_t i = thread_of_grid(); i < semantic.lists || i < semantic.size; i += threads_of_grid()) {
        if (i < semantic.lists && !offsets_hold(semantic, i)) {
            report(status, Fault::offsets);
        }
        if (i < semantic.size && !(isfinite(semantic.values[i]) && isfinite(structural[i]))) {
            report(status, Fault::scores);
        }
    }
}

// One block for each pool.
__global__ void graph_rank_kernel(RaggedArrays<float> semantic, const float* structural, float alpha, float* score,
                                  const std::int32_t* status) {
    if (*status != 0) {
        return;
    }
    GPU_SHARED(float, parts, threads / lanes);
    for (std::int64_t p = blockIdx.x; p < semantic.lists; p += gridDim.x) {
        rank_pool(semantic.values, structural, semantic.offsets[p], semantic.offsets[p + 1], alpha, score, parts);
    }
}

}  // namespace

void check_scores(const float* scores, std::size_t n, const Queue& queue) {
    if (n > 0) {
        GPU_LAUNCH(check_scores_kernel, blocks_for(n, threads), threads, 0, stream_of(queue), scores,
                   static_cast<std::int64_t>(n), queue.status);
    }
}

void check_alpha(float alpha) {
    if (!(alpha >= 0.0f && alpha <= 1.0f)) {
        throw Error("alpha: must lie in [0, 1]");
    }
}

void graph_rank(std::span<const float> semantic, std::span<const float> structural,
                std::span<const std::int64_t> pool_offsets, float alpha, std::span<float> score,
                const Queue& queue) {
    check_queue(queue, 0);
    check_alpha(alpha);
    if (structural.size() != semantic.size() || score.size() != semantic.size()) {
        throw Error("structural: must hold as many numbers as semantic");
    }
    const RaggedArrays<float> pools = ragged_arrays(Ragged<float>{pool_offsets, semantic}, "pool_offsets");
    if (pools.lists == 0) {
        return;
    }
    const auto lists = static_cast<std::size_t>(pools.lists);
    GPU_LAUNCH(check_rank_kernel, blocks_for(std::max(lists, semantic.size()), threads), threads, 0,
               stream_of(queue), pools, structural.data(), queue.status);
    GPU_LAUNCH(graph_rank_kernel, blocks_for(lists, 1), threads, 0, stream_of(queue), pools, structural.data(),
               alpha, score.data(), queue.status);
    check_launch("graph_rank");
}

}  // namespace pyfast::cuda
