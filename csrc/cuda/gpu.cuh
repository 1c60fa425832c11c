// The layer between the kernels and what compiles them, so that the same source also runs where there is no GPU:
// the emulator of the tests brings a cuda_runtime.h of its own, with these macros. All else is ordinary CUDA.
//
// What keeps a kernel testable: every thread of a block reaches every barrier, all lanes of a warp its ballots and
// shuffles; a kernel that leaves early does so as a whole; static or dynamic shared memory, not both.
#pragma once

#include <cuda_runtime.h>

#ifndef GPU_LAUNCH
// Protects the commas of a template's arguments in the macro below.
#define GPU_KERNEL(...) __VA_ARGS__
#define GPU_LAUNCH(kernel, grid, block, shared, stream, ...) \
    (kernel)<<<(grid), (block), (shared), (stream)>>>(__VA_ARGS__)
#define GPU_SHARED(T, name, count) __shared__ T name[count]
#define GPU_DYN_SHARED(T, name)                                     \
    extern __shared__ __align__(16) unsigned char gpu_dyn_shared[]; \
    T* const name = reinterpret_cast<T*>(gpu_dyn_shared)
// Of the workspace these bytes are an array: the emulator fences it off.
#define GPU_CARVED(array, bytes) static_cast<void>(0)
#endif

#include <cstddef>
#include <cstdint>

#include "pyfast/cuda/device.hpp"

namespace pyfast::cuda {

constexpr unsigned all_lanes = 0xFFFFFFFFU;
constexpr int lanes = 32;

inline cudaStream_t stream_of(const Queue& queue) { return static_cast<cudaStream_t>(queue.stream); }

// Throws DeviceError where the last launch, of the kernels of `op`, was refused. What goes wrong while they run
// shows when the caller synchronises.
void check_launch(const char* op);

// Cuts a workspace into arrays, none of which begins where another ends. Without one it only adds up what they
// need.
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

// Throws Error where the queue's workspace is smaller than that, or where it has no status word.
void check_queue(const Queue& queue, std::size_t workspace);

// Blocks for so many pieces of work, as the first dimension of a grid takes them. Kernels loop where there are
// more.
inline unsigned blocks_for(std::size_t pieces, std::size_t of_a_block) {
    constexpr std::size_t most = std::size_t{1} << 30;
    const std::size_t blocks = (pieces + of_a_block - 1) / of_a_block;
    return static_cast<unsigned>(blocks < most ? blocks : most);
}

// Adds to the faults that the caller will find. The order in which threads do so does not show.
__device__ inline void report(std::int32_t* status, Fault fault) { atomicOr(status, static_cast<int>(fault)); }

__device__ inline int lane_of_thread() { return static_cast<int>(threadIdx.x) % lanes; }
__device__ inline int warp_of_thread() { return static_cast<int>(threadIdx.x) / lanes; }

// The thread's, or its warp's, number in the grid, and how many of them there are.
__device__ inline std::int64_t thread_of_grid() {
    return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t threads_of_grid() { return static_cast<std::int64_t>(gridDim.x) * blockDim.x; }
__device__ inline std::int64_t warp_of_grid() { return thread_of_grid() / lanes; }
__device__ inline std::int64_t warps_of_grid() { return threads_of_grid() / lanes; }

// Of all lanes' numbers, the same for every lane, added up in a fixed order.
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

// The same of a block's threads; `parts` is shared memory for a number per warp.
template <class T, class Reduce>
__device__ inline T block_reduce(T number, T* parts, Reduce of_warp, T nothing) {
    const int warps = static_cast<int>(blockDim.x) / lanes;
    const int lane = lane_of_thread();
    number = of_warp(number);
    __syncthreads();  // the parts may still be in use
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
