// What iterative ops report for each pool, and how to stop them.
#pragma once

#include <atomic>
#include <cstdint>
#include <stdexcept>

#include "pyfast/api.hpp"

namespace pyfast {

// How the iteration of a pool ended.
struct Convergence {
    std::int64_t iterations = 0;
    bool converged = true;
};

// A flag that ends an op; the op reads it in each iteration. Another thread may set it. Null: the op cannot be
// stopped.
using Stop = const std::atomic<bool>*;

// Thrown if the flag was set. The outputs are then undefined.
class PYFAST_API Stopped : public std::runtime_error {
  public:
    Stopped() : std::runtime_error("stopped") {}
};

}  // namespace pyfast
