// bfloat16: the upper half of the bits of a float.
#pragma once

#include <bit>
#include <cstdint>

#include "pyfast/api.hpp"

namespace pyfast {

struct PYFAST_API bfloat16 {
    std::uint16_t bits;
};

inline float widen(bfloat16 number) { return std::bit_cast<float>(std::uint32_t{number.bits} << 16); }

// Rounds to the nearest, ties to even. NaN stays NaN.
inline bfloat16 narrow(float number) {
    const auto bits = std::bit_cast<std::uint32_t>(number);
    const std::uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    return {static_cast<std::uint16_t>(number == number ? rounded : bits >> 16 | 0x40)};
}

}  // namespace pyfast
