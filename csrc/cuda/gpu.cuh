// The layer between the kernels and their compiler, so that the same source also runs without a GPU: the emulator
// of the tests has its own cuda_runtime.h with these macros. Everything else is ordinary CUDA.
//
// Rules that keep a kernel testable: each thread of a block reaches each barrier, and all lanes of a warp reach
// its ballots and shuffles. If a kernel leaves early, all of its threads leave. A kernel uses static or dynamic
// shared memory, not both.
#pragma once

#include <cuda_runtime.h>

#ifndef GPU_LAUNCH
// Protects the commas of template arguments in the macro below.
#define GPU_KERNEL(...) __VA_ARGS__
#define GPU_LAUNCH(kernel, grid, block, shared, stream, ...) \
    (kernel)<<<(grid), (block), (shared), (stream)>>>(__VA_ARGS__)
#define GPU_SHARED(T, name, count) __shared__ T name[count]
#define GPU_DYN_SHARED(T, name)                                     \
    extern __shared__ __align__(16) unsigned char gpu_dyn_shared[]; \
    T* const name = reinterpret_cast<T*>(gpu_dyn_shared)
// Marks these bytes of the workspace as an array: the emulator puts fences around it.
#define GPU_CARVED(array, bytes) static_cast<void>(0)
// The largest grid of a kernel that loops over the rest. The emulator has smaller ones, so that kernels do loop.
#define GPU_MOST_BLOCKS (std::size_t{1} << 30)
#endif

#include <cstddef>
#include <cstdint>

#include "pyfast/cuda/device.hpp"

namespace pyfast::cuda {

constexpr unsigned all_lanes = 0xFFFFFFFFU;
constexpr int lanes = 32;

inline cudaStream_t stream_of(const Queue& queue) { return static_cast<cudaStream_t>(queue.stream); }

// Throws DeviceError if the last launch of the kernels of `op` was refused. Errors that occur while a kernel runs
// show up when the caller synchronises.
void check_launch(const char* op);

// Cuts a workspace into arrays with gaps between them. Without a workspace, it only adds up the sizes.
class Arena {
  public:
    explicit Arena(std::byte* base = nullptr) : base_(base) {}
    template <class T>
    T* take(std::size_t count) {
        constexpr std::size_t alignment = 256;
        std::byte* const array = base_ == nullptr ? nullptr : base_ + used_;
        used_ += (count * sizeof(T) + alignment) / alignment * alignment;
        if (array != nullptr) {
            GPU_CARVED(array, count * sizeof(T));
        }
        return reinterpret_cast<T*>(array);
    }
    [[nodiscard]] std::size_t used() const { return used_; }

  private:
    std::byte* base_;
    std::size_t used_ = 0;
};

// Throws Error if the queue's workspace is too small, or if the queue has no status word.
void check_queue(const Queue& queue, std::size_t workspace);

// The number of blocks for this many pieces of work, within the limit of a grid's first dimension. Kernels loop
// over the rest.
inline unsigned blocks_for(std::size_t pieces, std::size_t of_a_block) {
    const std::size_t blocks = (pieces + of_a_block - 1) / of_a_block;
    return static_cast<unsigned>(blocks < GPU_MOST_BLOCKS ? blocks : GPU_MOST_BLOCKS);
}

// Adds a fault to the status word. The order of the threads does not matter.
__device__ inline void report(std::int32_t* status, Fault fault) { atomicOr(status, static_cast<int>(fault)); }

__device__ inline int lane_of_thread() { return static_cast<int>(threadIdx.x) % lanes; }
__device__ inline int warp_of_thread() { return static_cast<int>(threadIdx.x) / lanes; }

// The number of the thread or warp in the grid, and how many there are.
__device__ inline std::int64_t thread_of_grid() {
    return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t threads_of_grid() { return static_cast<std::int64_t>(gridDim.x) * blockDim.x; }
__device__ inline std::int64_t warp_of_grid() { return thread_of_grid() / lanes; }
__device__ inline std::int64_t warps_of_grid() { return threads_of_grid() / lanes; }

// The sum of the numbers of all lanes, in a fixed order. Each lane gets it.
template <class T>
__device__ inline T warp_sum(T number) {
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
        number += __shfl_xor_sync(all_lanes, number, distance);
    }
    return number;
}
template <class T>
__device__ inline T warp_min(T number) {
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
        const T other = __shfl_xor_sync(all_lanes, number, distance);
        number = other < number ? other : number;
    }
    return number;
}
template <class T>
__device__ inline T warp_max(T number) {
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
        const T other = __shfl_xor_sync(all_lanes, number, distance);
        number = number < other ? other : number;
    }
    return number;
}

// The same for the threads of a block. `parts` is shared memory with one number for each warp.
template <class T, class Reduce>
__device__ inline T block_reduce(T number, T* parts, Reduce of_warp, T nothing) {
    const int warps = static_cast<int>(blockDim.x) / lanes;
    const int lane = lane_of_thread();
    number = of_warp(number);
    __syncthreads();  // other threads may still use the parts
    if (lane == 0) {
        parts[warp_of_thread()] = number;
    }
    __syncthreads();
    return of_warp(lane < warps ? parts[lane] : nothing);
}
template <class T>
__device__ inline T block_sum(T number, T* parts) {
    return block_reduce(number, parts, [](T n) { return warp_sum(n); }, T{});
}

}  // namespace pyfast::cuda
