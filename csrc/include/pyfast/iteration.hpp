// What ops that iterate tell of each pool, and how they are stopped.
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

// A caller's wish to end an op, looked at in every iteration; null: there is none. Another thread may set it.
using Stop = const std::atomic<bool>*;

// Thrown where a stop was set; what is in the outputs means nothing then.
class PYFAST_API Stopped : public std::runtime_error {
  public:
    Stopped() : std::runtime_error("stopped") {}
};

}  // namespace pyfast
