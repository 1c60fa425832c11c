// maxsim's work on one document: 16 tokens of a query at a time, each in its own lane. So no vector is added up
// across its lanes, and sums have one order on every processor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pyfast/maxsim.hpp"

namespace pyfast::maxsim_rows {

inline constexpr std::size_t lanes = 16;  // tokens of a query in a tile
inline constexpr std::size_t block = 12;  // tokens of a document in a block: kernels read whole blocks

// The codes of a query's tokens are from -127 to 127, and those of a document are shifted by 128. Two neighbours
// of the same sign in a query add up to at most 128. So no sum of their two products exceeds 16 bits.
struct Codes {
    const std::int8_t* query;   // [tiles, groups, lanes, 4]: four dimensions of each lane
    const std::int32_t* shift;  // [tiles, lanes]: -128 times the sum of the lane's codes
    std::size_t tiles;
    std::size_t groups;  // groups of four dimensions; those beyond the last dimension are zero in the query
    const std::uint8_t* document;  // [tokens, groups, 4]
    const float* scales;           // [tokens]: NaN beyond the last token, to fill the block
    std::size_t tokens;            // a multiple of `block`
};

// chosen[tile, lane]: the first token of the document with the largest product.
void choose(MaxsimLevel level, const Codes& codes, std::int32_t* chosen);
[[nodiscard]] bool has(MaxsimLevel level);

// The largest magnitude of n numbers. It is not finite if one of them is not.
float magnitude(const float* numbers, std::size_t n);

// Converts n finite numbers into codes of a query. Returns the sum of the codes.
std::int32_t round(const float* numbers, std::size_t n, std::int8_t* codes);

// Shifts codes by 128.
void shift(const std::int8_t* codes, std::size_t n, std::uint8_t* shifted);

// The tokens of a query, and the chosen token of the document for each. products[t] is without the scale.
struct Chosen {
    const float* query;  // [tokens, dimensions]
    std::size_t tokens;
    std::size_t dimensions;
    const std::uint8_t* document;  // [.., width]: shifted codes
    std::size_t width;
    const std::int32_t* places;  // [tokens]
};
void multiply(MaxsimLevel level, const Chosen& chosen, float* products);

// The same for numbers: best[tile, lane] is the largest product with one of the document's tokens, or NaN if one
// is not finite. `query` is [tiles, dimensions, lanes].
void largest(const float* query, std::size_t tiles, std::size_t dimensions, const float* document,
             std::size_t tokens, float* best);

}  // namespace pyfast::maxsim_rows
