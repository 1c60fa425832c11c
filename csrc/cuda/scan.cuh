// Running sums of a device array: they turn counts into offsets.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu.cuh"

namespace pyfast::cuda {

// The memory that a scan of n numbers needs, in numbers of 8 bytes.
std::size_t scan_memory(std::size_t n);

// numbers[i] becomes numbers[0] + ... + numbers[i], for n numbers. Does nothing if *status is not 0.
void scan(std::int64_t* numbers, std::size_t n, std::int64_t* memory, const std::int32_t* status,
          cudaStream_t stream);

// Sets Fault::bounds if a total that the device has computed is above `room`.
void check_total(const std::int64_t* total, std::int64_t room, const Queue& queue);

}  // namespace pyfast::cuda
