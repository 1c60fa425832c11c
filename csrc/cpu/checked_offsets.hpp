// Offsets as an op's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "pyfast/pools.hpp"

namespace pyfast {

// A copy, checked as check_offsets does: what an op counts by it is still so when it writes, though another thread
// should change the caller's meanwhile.
inline std::vector<std::int64_t> checked_offsets(std::span<const std::int64_t> offsets, std::size_t values,
                                                 const char* name) {
    std::vector<std::int64_t> own(offsets.begin(), offsets.end());
    check_offsets(own, values, name);
    return own;
}

}  // namespace pyfast
