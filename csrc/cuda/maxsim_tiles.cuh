// How a warp multiplies 32 vectors of a query with 64 of a document. Both come into shared memory in steps of some
// bytes of each vector.
#pragma once

#include "tiles.cuh"

namespace pyfast::cuda {

constexpr int piece_bytes = 16;
constexpr int warp_rows = 32;     // tokens of queries
constexpr int warp_columns = 64;  // tokens of documents

// Where a piece of a vector lies. The pieces of a vector change places from one vector to the next, so that lanes
// that read the same piece of eight vectors, or four pieces of two vectors, read from different banks.
template <int step_bytes>
__device__ inline unsigned place_of(unsigned vector, unsigned piece) {
    const unsigned change = vector / 2 % 4 + (step_bytes == 128 ? vector % 2 * 4 : 0);
    return vector * step_bytes + (piece ^ change) * piece_bytes;
}

// Keys are ordered as numbers are. The key of NaN is the largest, and 0 is less than any key.
__device__ inline unsigned key_of(float number) {
    const unsigned bits = __float_as_uint(number);
    return isnan(number) ? 0xFFFFFFFFU : (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
}
__device__ inline float number_of(unsigned key) {
    return __uint_as_float((key >> 31) != 0 ? key & 0x7FFFFFFFU : ~key);
}

// The tile of a block: its warps lie beside and below each other.
template <int row_warps_, int column_warps_, int blocks_>
struct Tiles {
    static constexpr int row_warps = row_warps_;
    static constexpr int column_warps = column_warps_;
    static constexpr int rows = row_warps * warp_rows;
    static constexpr int columns = column_warps * warp_columns;
    static constexpr int threads = row_warps * column_warps * lanes;
    static constexpr int blocks = blocks_;  // on a multiprocessor
};

// A kind of product says which sums of the tile a lane has: sums[i][j] is of row(i) and column(j). The columns of
// a lane ascend. `across` lanes, which are neighbours, have the same rows.

// Products of float32. The numbers of a sum are multiplied, rounded and added in the order of the dimensions, as
// on the CPU.
struct ExactProducts {
    using Number = float;
    using Sum = float;
    using Key = unsigned;
    using ManyQueries = Tiles<2, 2, 3>;
    using OneQuery = Tiles<1, 4, 3>;
    static constexpr int step_bytes = 64;
    static constexpr int stages = 3;
    static constexpr int rows = 8;
    static constexpr int columns = 8;
    static constexpr int across = 8;
    __device__ static int row(int i) { return lane_of_thread() / across * rows + i; }
    __device__ static int column(int j) { return lane_of_thread() % across + j * across; }
    // `queries` and `documents` are the places of the tile's first vectors.
    __device__ static void add(const unsigned char* memory, unsigned queries, unsigned documents,
                               Sum (&sums)[rows][columns]) {
        const unsigned first = queries + static_cast<unsigned>(row(0)) * step_bytes;
        // Of a lane's columns, equal pieces are at equal places.
        const unsigned second = documents + place_of<step_bytes>(static_cast<unsigned>(column(0)), 0);
#pragma unroll 1  // the loop then fits the instruction cache
        for (unsigned piece = 0; piece < step_bytes / piece_bytes; ++piece) {
            float4 query[rows];
#pragma unroll
            for (int i = 0; i < rows; ++i) {
                query[i] = *reinterpret_cast<const float4*>(memory + first + place_of<step_bytes>(i, piece));
            }
            const unsigned char* const tokens = memory + (second ^ piece * piece_bytes);
#pragma unroll
            for (int j = 0; j < columns; ++j) {
                const float4 token = *reinterpret_cast<const float4*>(tokens + j * across * step_bytes);
#pragma unroll
                for (int i = 0; i < rows; ++i) {
                    sums[i][j] += query[i].x * token.x;
                    sums[i][j] += query[i].y * token.y;
                    sums[i][j] += query[i].z * token.z;
                    sums[i][j] += query[i].w * token.w;
                }
            }
        }
    }
};

// What tensor cores have in common: four lanes share the 16-byte pieces of a vector. Which of its dimensions meet
// in one product of matrices does not matter.
template <class Number_, class Sum_, class Key_>
struct TensorProducts {
    using Number = Number_;
    using Sum = Sum_;
    using Key = Key_;
    static constexpr int step_bytes = 128;
    static constexpr int stages = 2;
    static constexpr int rows = 4;
    static constexpr int columns = 16;
    static constexpr int across = 4;
    __device__ static int row(int i) { return lane_of_thread() / across + i * 8; }
    __device__ static int column(int j) { return lane_of_thread() % across * 2 + j % 2 + j / 2 * 8; }
    // Product::piece turns 16 bytes into what Product::add multiplies.
    template <class Product>
    __device__ static void add_products(const unsigned char* memory, unsigned queries, unsigned documents,
                                        Sum (&sums)[rows][columns]) {
        const auto lane = static_cast<unsigned>(lane_of_thread());
        const unsigned own = place_of<step_bytes>(lane / across, lane % across);
#pragma unroll
        for (unsigned first = 0; first < step_bytes / piece_bytes; first += across) {
            const unsigned char* const asked = memory + (queries + own ^ first * piece_bytes);
            const unsigned char* const read = memory + (documents + own ^ first * piece_bytes);
            decltype(Product::piece(asked)) query[rows];
#pragma unroll
            for (int i = 0; i < rows; ++i) {
                query[i] = Product::piece(asked + i * 8 * step_bytes);
            }
#pragma unroll
            for (int j = 0; j < columns; j += 2) {
                const auto token = Product::piece(read + j * 4 * step_bytes);
#pragma unroll
                for (int i = 0; i < rows; i += 2) {
                    Product::add(query[i], query[i + 1], token, sums[i][j], sums[i][j + 1], sums[i + 1][j],
                                 sums[i + 1][j + 1]);
                }
            }
        }
    }
};

// Products of codes, exact.
struct CodeProducts : TensorProducts<std::int8_t, int, unsigned long long> {
    using ManyQueries = Tiles<4, 1, 3>;
    using OneQuery = Tiles<1, 2, 4>;
    __device__ static uint4 piece(const unsigned char* place) { return *reinterpret_cast<const uint4*>(place); }
    __device__ static void add(uint4 a, uint4 b, uint4 token, int& s0, int& s1, int& s2, int& s3) {
        add_products_of_codes(s0, s1, s2, s3, a.x, b.x, a.y, b.y, token.x, token.y);
        add_products_of_codes(s0, s1, s2, s3, a.z, b.z, a.w, b.w, token.z, token.w);
    }
    __device__ static void add(const unsigned char* memory, unsigned queries, unsigned documents,
                               Sum (&sums)[rows][columns]) {
        add_products<CodeProducts>(memory, queries, documents, sums);
    }
};

// Products of float32 numbers that are rounded to bfloat16, added up in float32.
struct RoundedProducts : TensorProducts<float, float, unsigned> {
    using ManyQueries = Tiles<4, 2, 2>;
    using OneQuery = Tiles<1, 2, 4>;
    __device__ static uint2 piece(const unsigned char* place) {
        const float4 numbers = *reinterpret_cast<const float4*>(place);
        return {two_bfloat16(numbers.x, numbers.y), two_bfloat16(numbers.z, numbers.w)};
    }
    __device__ static void add(uint2 a, uint2 b, uint2 token, float& s0, float& s1, float& s2, float& s3) {
        add_products_of_bfloat16(s0, s1, s2, s3, a.x, b.x, a.y, b.y, token.x, token.y);
    }
    __device__ static void add(const unsigned char* memory, unsigned queries, unsigned documents,
                               Sum (&sums)[rows][columns]) {
        add_products<RoundedProducts>(memory, queries, documents, sums);
    }
};

}  // namespace pyfast::cuda
