// Copies that go on beside the work, and products of tensor cores, as csrc/cuda/tiles.cuh has them for nvcc.
//
// A copy is made when its thread waits for it. Until then there is poison in its place, as of a write that begins
// with the copy: so what is read too early is wrong, and ThreadSanitizer sees what nobody's barrier has ended yet.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "core.hpp"
#include "warp.hpp"

#define GPU_EMULATED

namespace emulator {

// Registers of all lanes of a warp, two words each.
struct Registers {
    std::uint64_t words[32];
    [[nodiscard]] unsigned operator()(unsigned lane, unsigned place) const {
        return static_cast<unsigned>(words[lane] >> 32 * place);
    }
};
inline Registers exchanged(unsigned low, unsigned high, Place place) {
    exchange(Exchange::product, 0xFFFFFFFFU, std::uint64_t{high} << 32 | low, place);
    Registers all;
    for (unsigned l = 0; l < 32; ++l) {
        all.words[l] = word_of(l);
    }
    return all;
}

// Adds what `product` makes of two registers to the sums of the lane.
template <class Sum, class Wide, class Product>
void add_products(Sum* const (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2], Place place,
                  const Product& product) {
    const Registers low = exchanged(a[0], a[1], place);  // of row l / 4, and of that 8 below
    const Registers high = exchanged(a[2], a[3], place);
    const Registers second = exchanged(b[0], b[1], place);
    for (unsigned i = 0; i < 4; ++i) {
        const unsigned row = lane() / 4;
        const unsigned column = lane() % 4 * 2 + i % 2;
        Wide total = *sums[i];
        for (unsigned l = 0; l < 4; ++l) {
            total += product(low(row * 4 + l, i / 2), second(column * 4 + l, 0));
            total += product(high(row * 4 + l, i / 2), second(column * 4 + l, 1));
        }
        *sums[i] = static_cast<Sum>(total);
    }
}

inline float of_bfloat16(unsigned bits) { return std::bit_cast<float>(bits << 16); }

}  // namespace emulator

namespace pyfast::cuda {

inline void copy_16_bytes(void* shared, const void* global, bool there, EMULATOR_PLACE) {
    if (reinterpret_cast<std::uintptr_t>(shared) % 16 != 0 || reinterpret_cast<std::uintptr_t>(global) % 16 != 0) {
        emulator::fail(place, "misaligned copy");
    }
    auto* const words = static_cast<std::uint64_t*>(shared);
    words[0] = words[1] = 0x0101010101010101U * emulator::schedule.poison;
    emulator::begin_copy({words, there ? static_cast<const std::uint64_t*>(global) : nullptr});
}
inline void commit_copies() { emulator::commit_copies(); }
template <int groups>
void wait_for_copies() {
    for (const emulator::Copy& copy : emulator::copies_due(groups)) {
        for (int i = 0; i < 2; ++i) {
            copy.to[i] = copy.from != nullptr ? copy.from[i] : 0;
        }
    }
}

inline void add_products_of_codes(int& s0, int& s1, int& s2, int& s3, unsigned a0, unsigned a1, unsigned a2,
                                  unsigned a3, unsigned b0, unsigned b1, EMULATOR_PLACE) {
    emulator::add_products<int, std::int64_t>(
        {&s0, &s1, &s2, &s3}, {a0, a1, a2, a3}, {b0, b1}, place, [](unsigned a, unsigned b) {
            int sum = 0;
            for (int i = 0; i < 32; i += 8) {
                sum += static_cast<std::int8_t>(a >> i) * static_cast<std::int8_t>(b >> i);
            }
            return sum;
        });
}
inline void add_products_of_bfloat16(float& s0, float& s1, float& s2, float& s3, unsigned a0, unsigned a1,
                                     unsigned a2, unsigned a3, unsigned b0, unsigned b1, EMULATOR_PLACE) {
    emulator::add_products<float, double>(
        {&s0, &s1, &s2, &s3}, {a0, a1, a2, a3}, {b0, b1}, place, [](unsigned a, unsigned b) {
            using emulator::of_bfloat16;
            return double{of_bfloat16(a)} * of_bfloat16(b) + double{of_bfloat16(a >> 16)} * of_bfloat16(b >> 16);
        });
}
inline unsigned two_bfloat16(float low, float high) {
    const auto rounded = [](float number) -> unsigned {
        const auto bits = std::bit_cast<std::uint32_t>(number);
        return std::isnan(number) ? 0x7FFF : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    };
    return rounded(high) << 16 | rounded(low);
}

}  // namespace pyfast::cuda
