// What the GPU ops on pools share.
#pragma once

#include <cstdint>
#include <span>

#include "pyfast/cuda/device.hpp"
#include "pyfast/pools.hpp"

namespace pyfast::cuda {

// Upper bounds of the sizes of pools that are on the device. evidence_graph plans its launches and its workspace
// with them. Larger pools are a Fault. Bounds that are too large only take memory.
struct Bounds {
    std::int64_t documents = 0;  // documents of the largest pool
    std::int64_t pairs = 0;      // the sum of documents x documents over all pools
    std::int64_t entries = 0;    // entries of the forward index in the rows of all pools
};

// The bounds of pools, from their arrays: `bounds` gets three numbers, in the order above. Faults: offsets.
// Anything else that is malformed counts as an empty row.
PYFAST_API void pool_bounds(const Forward& x, const Pools& pools, std::span<std::int64_t> bounds,
                            const Queue& queue);

}  // namespace pyfast::cuda
