// maxsim: late interaction, the score of documents whose every token has a vector.
#pragma once

#include <cstdint>
#include <span>

#include "pyfast/api.hpp"

namespace pyfast {

// Documents as vectors of their tokens, one document after another. Vectors are `numbers`, or `codes`, each vector
// times its scale.
struct TokenVectors {
    std::span<const float> numbers;         // [tokens, dimensions]
    std::span<const std::int8_t> codes;     // [tokens, dimensions], in place of `numbers`
    std::span<const float> scales;          // [tokens], with `codes`: finite and not negative
    std::span<const std::int64_t> offsets;  // [documents + 1]
};

// Instructions for products of codes. Results are the same, bit for bit.
enum class MaxsimLevel {
    portable,     // what every processor has
    avx2,         // AVX2
    avx512,       // AVX-512 (F, BW)
    avx512_vnni,  // the same with VNNI
    best,         // the highest of those that the processor has
};

// What `best` is on this processor.
PYFAST_API MaxsimLevel maxsim_level();

struct MaxsimOptions {
    std::int64_t dimensions = 0;  // of a vector, at most 65,536
    int threads = 1;
    MaxsimLevel level = MaxsimLevel::best;  // throws Error for one that the processor lacks
};

// Of each pair (query, document) the score
//     sum over the query's tokens q of max over the document's tokens d of q . d
// `pairs` is [scores, 2]; `queries` is [tokens, dimensions], `query_offsets` [queries + 1].
//
// With `codes` the token d is chosen by a product of integers, for which the query's vectors are rounded to 7
// bits; the product of the chosen one is computed in float, of the query's own numbers. A document without tokens
// has a score of -infinity, a query without tokens 0.
//
// A pair is one thread's work: O(query's tokens * document's tokens * dimensions). All queries are packed once.
// Only the documents that pairs name are read and checked. Thread-safe; a score depends on nothing but its pair.
// Throws Error on malformed input and on numbers that are not finite.
PYFAST_API void maxsim(std::span<const float> queries, std::span<const std::int64_t> query_offsets,
                       const TokenVectors& documents, std::span<const std::int64_t> pairs,
                       const MaxsimOptions& options, std::span<float> scores);

}  // namespace pyfast
