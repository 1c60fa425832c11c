// What the ops of pools on a GPU share.
#pragma once

#include <cstdint>

#include "pyfast/cuda/device.hpp"
#include "pyfast/pools.hpp"

namespace pyfast::cuda {

// What the host knows of pools that lie on the device: how large they are at most. An op plans its launches and
// its workspace by it. Pools that are larger are a Fault; bounds that are too large only cost memory.
struct Bounds {
    std::int64_t documents = 0;  // of any one pool: for evidence_graph
    std::int64_t pairs = 0;      // documents x documents of each pool, added up: for evidence_graph
    std::int64_t entries = 0;    // of the forward index, in the rows of any one pool: for weighted_degree
};

}  // namespace pyfast::cuda
