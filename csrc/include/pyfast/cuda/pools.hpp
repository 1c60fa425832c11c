// What the GPU ops on pools share.
#pragma once

#include <cstdint>

#include "pyfast/cuda/device.hpp"
#include "pyfast/pools.hpp"

namespace pyfast::cuda {

// Upper bounds of the sizes of pools that are on the device. An op plans its launches and its workspace with them.
// A larger pool is a Fault. Bounds that are too large only take memory.
struct Bounds {
    std::int64_t documents = 0;  // documents of the largest pool: for evidence_graph
    std::int64_t pairs = 0;      // the sum of documents x documents over all pools: for evidence_graph
    std::int64_t entries = 0;  // entries of the forward index in the rows of the largest pool: for weighted_degree
};

}  // namespace pyfast::cuda
