// Barriers, shuffles, votes and reductions, after the definitions of the CUDA C++ Programming Guide.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core.hpp"

#define EMULATOR_PLACE emulator::Place place = {__builtin_FILE(), __builtin_LINE()}

inline void __syncthreads(EMULATOR_PLACE) { emulator::barrier(emulator::Barrier::plain, 0, place); }
inline int __syncthreads_count(int predicate, EMULATOR_PLACE) {
    return emulator::barrier(emulator::Barrier::count, predicate, place);
}
inline int __syncthreads_and(int predicate, EMULATOR_PLACE) {
    return emulator::barrier(emulator::Barrier::all, predicate, place);
}
inline int __syncthreads_or(int predicate, EMULATOR_PLACE) {
    return emulator::barrier(emulator::Barrier::any, predicate, place);
}
// Of the meetings of a warp this one alone orders memory.
inline void __syncwarp(unsigned mask = 0xFFFFFFFFu, EMULATOR_PLACE) {
    emulator::exchange(emulator::Exchange::fence, mask, 0, place);
}

namespace emulator {

template <class T>
T shuffle(unsigned mask, T value, int source, Place place) {
    static_assert(sizeof(T) <= sizeof(std::uint64_t) && std::is_trivially_copyable_v<T>);
    std::uint64_t word = 0;
    std::memcpy(&word, &value, sizeof value);
    exchange(Exchange::shuffle, mask, word, place);
    if (!(mask >> source & 1)) {
        fail(place, "shuffle from a lane that is not in the mask");
    }
    word = word_of(static_cast<unsigned>(source));
    std::memcpy(&value, &word, sizeof value);
    return value;
}

// The first lane of this lane's segment of `width` lanes.
inline int segment(int width) { return static_cast<int>(lane()) & ~(width - 1); }

template <class T, class F>
T reduce(unsigned mask, T value, Place place, F combine) {
    exchange(Exchange::reduce, mask, static_cast<std::uint64_t>(value), place);
    bool first = true;
    T total{};
    for (unsigned l = 0; l < 32; ++l) {
        if (mask >> l & 1) {
            const T other = static_cast<T>(word_of(l));
            total = first ? other : combine(total, other);
            first = false;
        }
    }
    return total;
}

}  // namespace emulator

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, EMULATOR_PLACE) {
    return emulator::shuffle(mask, value, emulator::segment(width) + (source & (width - 1)), place);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, EMULATOR_PLACE) {
    const int own = static_cast<int>(emulator::lane());
    const int source = own + static_cast<int>(by);
    return emulator::shuffle(mask, value, source < emulator::segment(width) + width ? source : own, place);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, EMULATOR_PLACE) {
    const int own = static_cast<int>(emulator::lane());
    const int source = own - static_cast<int>(by);
    return emulator::shuffle(mask, value, source >= emulator::segment(width) ? source : own, place);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, EMULATOR_PLACE) {
    const int own = static_cast<int>(emulator::lane());
    const int source = own ^ bits;
    return emulator::shuffle(mask, value, source < emulator::segment(width) + width ? source : own, place);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, EMULATOR_PLACE) {
    emulator::exchange(emulator::Exchange::vote, mask, predicate != 0, place);
    unsigned votes = 0;
    for (unsigned l = 0; l < 32; ++l) {
        votes |= static_cast<unsigned>((mask >> l & 1) & emulator::word_of(l)) << l;
    }
    return votes;
}
inline int __any_sync(unsigned mask, int predicate, EMULATOR_PLACE) {
    return __ballot_sync(mask, predicate, place) != 0;
}
inline int __all_sync(unsigned mask, int predicate, EMULATOR_PLACE) {
    return __ballot_sync(mask, predicate, place) == mask;
}

template <class T>
T __reduce_add_sync(unsigned mask, T value, EMULATOR_PLACE) {
    return emulator::reduce(mask, value, place, [](T a, T b) { return static_cast<T>(a + b); });
}
template <class T>
T __reduce_min_sync(unsigned mask, T value, EMULATOR_PLACE) {
    return emulator::reduce(mask, value, place, [](T a, T b) { return a < b ? a : b; });
}
template <class T>
T __reduce_max_sync(unsigned mask, T value, EMULATOR_PLACE) {
    return emulator::reduce(mask, value, place, [](T a, T b) { return a < b ? b : a; });
}
template <class T>
T __reduce_or_sync(unsigned mask, T value, EMULATOR_PLACE) {
    return emulator::reduce(mask, value, place, [](T a, T b) { return static_cast<T>(a | b); });
}
