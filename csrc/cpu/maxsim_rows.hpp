// What maxsim does with one document: 16 tokens of a query at a time, each in a lane of its own, so that no
// vector is ever added up across its lanes, and sums have one order on every processor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pyfast/maxsim.hpp"

namespace pyfast::maxsim_rows {

inline constexpr std::size_t lanes = 16;  // tokens of a query that are worked on together: a tile
inline constexpr std::size_t block = 12;  // tokens of a document: kernels read whole blocks

// Codes of a query's tokens, -63 to 63, and of a document's, shifted by 128: no sum of two products exceeds 16
// bits.
struct Codes {
    const std::int8_t* query;   // [tiles, groups, lanes, 4]: of each lane four dimensions
    const std::int32_t* shift;  // [tiles, lanes]: -128 times the sum of the lane's codes
    std::size_t tiles;
    std::size_t groups;            // of four dimensions; those behind the last are zero in the query
    const std::uint8_t* document;  // [tokens, groups, 4]
    const float* scales;           // [tokens]: NaN behind the last, to fill the block
    std::size_t tokens;            // a multiple of `block`
};

// chosen[tile, lane]: the document's first token of the largest product.
void choose(MaxsimLevel level, const Codes& codes, std::int32_t* chosen);
[[nodiscard]] bool has(MaxsimLevel level);

// The largest magnitude of n numbers; not finite where one is not.
float magnitude(const float* numbers, std::size_t n);

// n numbers as codes of a query, -63 to 63; their sum.
std::int32_t round(const float* numbers, std::size_t n, float magnitude, std::int8_t* codes);

// Codes shifted by 128.
void shift(const std::int8_t* codes, std::size_t n, std::uint8_t* shifted);

// A query's tokens, and of each the document's token that was chosen: products[t] without its scale.
struct Chosen {
    const float* query;  // [tokens, dimensions]
    std::size_t tokens;
    std::size_t dimensions;
    const std::uint8_t* document;  // [.., width]: shifted codes
    std::size_t width;
    const std::int32_t* places;  // [tokens]
};
void multiply(MaxsimLevel level, const Chosen& chosen, float* products);

// Numbers in place of codes: best[tile, lane] is the largest product with one of the document's tokens, NaN where
// one is not finite. `query` is [tiles, dimensions, lanes].
void largest(const float* query, std::size_t tiles, std::size_t dimensions, const float* document,
             std::size_t tokens, float* best);

}  // namespace pyfast::maxsim_rows
