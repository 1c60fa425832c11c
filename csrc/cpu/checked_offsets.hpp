// A copy of offsets that an op owns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "pyfast/pools.hpp"

namespace pyfast {

// A copy, checked as check_offsets does. Even if another thread changes the caller's offsets, the op counts and
// writes by the same numbers.
inline std::vector<std::int64_t> checked_offsets(std::span<const std::int64_t> offsets, std::size_t values,
                                                 const char* name) {
    std::vector<std::int64_t> own(offsets.begin(), offsets.end());
    check_offsets(own, values, name);
    return own;
}

}  // namespace pyfast
