// The id of a segment, computed from what identifies it.
#pragma once

#include <cstdint>

namespace pyfast {

// splitmix64 (Steele, Lea, Flood 2014)
constexpr std::uint64_t mixed(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
    return x ^ (x >> 31);
}

// `document` is the hash of the document's uri. `first` and `second` are the offsets of the segment. For a segment
// of triples, they are the number of its (first) triple, and -1.
constexpr std::uint64_t segment_id(std::uint64_t document, std::uint8_t level, std::int64_t first,
                                   std::int64_t second) {
    constexpr std::uint64_t step = 0x9E3779B97F4A7C15U;
    const std::uint64_t place =
        mixed(mixed(document + (level + std::uint64_t{1}) * step) + static_cast<std::uint64_t>(first) * step);
    return mixed(place + static_cast<std::uint64_t>(second) * step);
}

}  // namespace pyfast
