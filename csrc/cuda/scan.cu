#include "scan.cuh"

namespace pyfast::cuda {

namespace {

constexpr int threads = 256;
constexpr int each = 4;  // the numbers of one thread
constexpr int tile = threads * each;

// The sum of the numbers of the earlier threads in the block. `total` is the sum of all.
__device__ inline std::int64_t sum_before(std::int64_t number, std::int64_t* parts, std::int64_t& total) {
    const int lane = lane_of_thread();
    std::int64_t sum = number;
    for (int distance = 1; distance < lanes; distance *= 2) {
        const std::int64_t other = __shfl_up_sync(all_lanes, sum, distance);
        sum += lane >= distance ? other : 0;
    }
    if (lane == lanes - 1) {
        parts[warp_of_thread()] = sum;
    }
    __syncthreads();
    std::int64_t before = sum - number;
    total = 0;
    for (int warp = 0; warp < threads / lanes; ++warp) {
        before += warp < warp_of_thread() ? parts[warp] : 0;
        total += parts[warp];
    }
    __syncthreads();
    return before;
}

// Scans one tile from `base` on. Returns its sum.
__device__ inline std::int64_t scan_tile(std::int64_t* numbers, std::int64_t n, std::int64_t first,
                                         std::int64_t base, std::int64_t* parts) {
    const std::int64_t begin = first + static_cast<std::int64_t>(threadIdx.x) * each;
    std::int64_t mine[each];
    std::int64_t sum = 0;
    for (int k = 0; k < each; ++k) {
        mine[k] = begin + k < n ? numbers[begin + k] : 0;
        sum += mine[k];
    }
    std::int64_t total;
    std::int64_t running = base + sum_before(sum, parts, total);
    for (int k = 0; k < each; ++k) {
        running += mine[k];
        if (begin + k < n) {
            numbers[begin + k] = running;
        }
    }
    return total;
}

// One block for each tile. totals[b] is the sum of tile b.
__global__ void scan_tiles(std::int64_t* numbers, std::int64_t n, std::int64_t* totals,
                           const std::int32_t* status) {
    if (*status != 0) {
        return;
    }
    GPU_SHARED(std::int64_t, parts, threads / lanes);
    const std::int64_t total = scan_tile(numbers, n, static_cast<std::int64_t>(blockIdx.x) * tile, 0, parts);
    if (threadIdx.x == 0) {
        totals[blockIdx.x] = total;
    }
}

// One block for all of the totals.
__global__ void scan_totals(std::int64_t* totals, std::int64_t n, const std::int32_t* status) {
    if (*status != 0) {
        return;
    }
    GPU_SHARED(std::int64_t, parts, threads / lanes);
    std::int64_t base = 0;
    for (std::int64_t first = 0; first < n; first += tile) {
        base += scan_tile(totals, n, first, base, parts);
    }
}

__global__ void add_totals(std::int64_t* numbers, std::int64_t n, const std::int64_t* totals,
                           const std::int32_t* status) {
    if (*status != 0) {
        return;
    }
    // the first tile needs no offset
    const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) + 1) * tile;
    for (int k = 0; k < each; ++k) {
        const std::int64_t at = first + k * threads + threadIdx.x;
        if (at < n) {
            numbers[at] += totals[blockIdx.x];
        }
    }
}

__global__ void check_total_kernel(const std::int64_t* total, std::int64_t room, std::int32_t* status) {
    if (*status == 0 && *total > room) {
        report(status, Fault::bounds);
    }
}

}  // namespace

std::size_t scan_memory(std::size_t n) { return (n + tile - 1) / tile; }

void scan(std::int64_t* numbers, std::size_t n, std::int64_t* memory, const std::int32_t* status,
          cudaStream_t stream) {
    if (n == 0) {
        return;
    }
    const auto size = static_cast<std::int64_t>(n);
    const auto tiles = static_cast<unsigned>(scan_memory(n));
    GPU_LAUNCH(scan_tiles, tiles, threads, 0, stream, numbers, size, memory, status);
    if (tiles > 1) {
        GPU_LAUNCH(scan_totals, 1, threads, 0, stream, memory, static_cast<std::int64_t>(tiles), status);
        GPU_LAUNCH(add_totals, tiles - 1, threads, 0, stream, numbers, size, memory, status);
    }
}

void check_total(const std::int64_t* total, std::int64_t room, const Queue& queue) {
    GPU_LAUNCH(check_total_kernel, 1, 1, 0, stream_of(queue), total, room, queue.status);
}

}  // namespace pyfast::cuda
