// Running sums of a device array: from counts to offsets.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu.cuh"

namespace pyfast::cuda {

// Numbers of 8 bytes that a scan of n needs as memory.
std::size_t scan_memory(std::size_t n);

// numbers[i] becomes numbers[0] + ... + numbers[i], for n of them. Nothing happens where *status is not 0.
void scan(std::int64_t* numbers, std::size_t n, std::int64_t* memory, const std::int32_t* status,
          cudaStream_t stream);

// A total that the device has found may be no more than there is room for: else Fault::bounds.
void check_total(const std::int64_t* total, std::int64_t room, const Queue& queue);

}  // namespace pyfast::cuda
