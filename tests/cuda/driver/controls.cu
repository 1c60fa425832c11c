// Small kernels, one for each thing that a kernel can get wrong: the harness's own, right as they stand. In copies
// of this file faults are planted (plants.py); each must be found, and nothing in this one.
#include "calls.hpp"
#include "tiles.cuh"

namespace {

using namespace pyfast::cuda;

const auto on = static_cast<cudaStream_t>(driver::stream);
constexpr int block_size = 128;
constexpr int warps = block_size / lanes;

// total += sum of numbers; sums[b]: that of block b. Static shared memory, shuffles, an atomic.
__global__ void __launch_bounds__(block_size)
    sum_kernel(const int* __restrict__ numbers, int n, int* sums, int* total) {
    GPU_SHARED(int, parts, warps);
    const int thread = static_cast<int>(threadIdx.x);
    int sum = 0;
    for (int i = static_cast<int>(blockIdx.x) * block_size + thread; i < n;
         i += static_cast<int>(gridDim.x) * block_size) {
        sum += numbers[i];
    }
    sum = warp_sum(sum);
    if (thread % lanes == 0) {
        parts[thread / lanes] = sum;
    }
    __syncthreads();
    if (thread < lanes) {
        sum = warp_sum(thread < warps ? parts[thread] : 0);
        if (thread == 0) {
            sums[blockIdx.x] = sum;
            atomicAdd(total, sum);
        }
    }
}

// counts[v]: how many numbers are v, for each of `values`, by one block. Dynamic shared memory, atomics on it.
__global__ void __launch_bounds__(block_size) count_kernel(const int* numbers, int n, int values, int* counts) {
    GPU_DYN_SHARED(int, held);
    for (int v = static_cast<int>(threadIdx.x); v < values; v += block_size) {
        held[v] = 0;
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < n; i += block_size) {
        atomicAdd(&held[numbers[i]], 1);
    }
    __syncthreads();
    for (int v = static_cast<int>(threadIdx.x); v < values; v += block_size) {
        counts[v] = held[v];
    }
}

// kept[k]: the k-th number that is not 0, by one warp; `found` of them. Ballots in a loop that all lanes take.
__global__ void __launch_bounds__(lanes) keep_kernel(const int* numbers, int n, int* kept, int* found) {
    const int lane = static_cast<int>(threadIdx.x);
    int before = 0;
    for (int first = 0; first < n; first += lanes) {
        const int i = first + lane;
        const int number = i < n ? numbers[i] : 0;
        const unsigned held = __ballot_sync(all_lanes, number != 0);
        if (number != 0) {
            kept[before + __popc(held & ((1U << lane) - 1U))] = number;
        }
        before += __popc(held);
    }
    if (lane == 0) {
        *found = before;
    }
}

// to[i] = from[i + 1], around each warp, through shared memory that only the warp uses.
__global__ void __launch_bounds__(block_size) pass_kernel(const int* from, int* to) {
    GPU_SHARED(int, hand, block_size);
    const int thread = static_cast<int>(threadIdx.x);
    const int at = static_cast<int>(blockIdx.x) * block_size + thread;
    hand[thread] = from[at];
    __syncwarp();
    to[at] = hand[thread / lanes * lanes + (thread + 1) % lanes];
}

// sums[r, c] = the product of vectors r and 16 + c of 24 with 32 codes each. Copies beside the work, and a tensor
// core.
__global__ void __launch_bounds__(block_size) tile_kernel(const std::int8_t* codes, int* sums) {
    GPU_SHARED(uint4, held, 48);
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < 48) {
        copy_16_bytes(&held[thread], codes + thread * 16, true);
    }
    commit_copies();
    wait_for_copies<0>();
    __syncthreads();
    if (threadIdx.x < lanes) {
        const auto* const words = reinterpret_cast<const unsigned*>(held);
        const unsigned* const a = words + thread / 4 * 8 + thread % 4;
        const unsigned* const b = a + 16 * 8;
        int* const to = sums + thread / 4 * 8 + thread % 4 * 2;
        int s0 = 0;
        int s1 = 0;
        int s2 = 0;
        int s3 = 0;
        add_products_of_codes(s0, s1, s2, s3, a[0], a[64], a[4], a[68], b[0], b[4]);
        to[0] = s0;
        to[1] = s1;
        to[64] = s2;
        to[65] = s3;
    }
}

void sum(driver::Arguments& a) {
    const auto numbers = a.array<const int>();
    const auto sums = a.array<int>();
    const auto total = a.array<int>();
    static_cast<void>(cudaMemsetAsync(total.data(), 0, total.size_bytes(), on));
    GPU_LAUNCH(sum_kernel, static_cast<unsigned>(sums.size()), block_size, 0, on, numbers.data(),
               static_cast<int>(numbers.size()), sums.data(), total.data());
}

void count(driver::Arguments& a) {
    const auto numbers = a.array<const int>();
    const auto counts = a.array<int>();
    GPU_LAUNCH(count_kernel, 1, block_size, counts.size_bytes(), on, numbers.data(),
               static_cast<int>(numbers.size()), static_cast<int>(counts.size()), counts.data());
}

void keep(driver::Arguments& a) {
    const auto numbers = a.array<const int>();
    const auto kept = a.array<int>();
    const auto found = a.array<int>();
    GPU_LAUNCH(keep_kernel, 1, lanes, 0, on, numbers.data(), static_cast<int>(numbers.size()), kept.data(),
               found.data());
}

void pass(driver::Arguments& a) {
    const auto from = a.array<const int>();
    const auto to = a.array<int>();
    GPU_LAUNCH(pass_kernel, static_cast<unsigned>(from.size() / block_size), block_size, 0, on, from.data(),
               to.data());
}

void tile(driver::Arguments& a) {
    const auto codes = a.array<const std::int8_t>();
    GPU_LAUNCH(tile_kernel, 1, block_size, 0, on, codes.data(), a.array<int>().data());
}

}  // namespace

const std::map<std::string, driver::Call>& driver::calls() {
    static const std::map<std::string, driver::Call> all{
        {"sum", sum}, {"count", count}, {"keep", keep}, {"pass", pass}, {"tile", tile}};
    return all;
}
