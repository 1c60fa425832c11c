// maxsim: the score of late interaction, between the token vectors of a query and of a document.
#pragma once

#include <cstdint>
#include <span>

#include "pyfast/api.hpp"

namespace pyfast {

// The token vectors of documents, one document after another. A vector is a row of `numbers`, or a row of `codes`
// times its scale.
struct TokenVectors {
    std::span<const float> numbers;         // [tokens, dimensions]
    std::span<const std::int8_t> codes;     // [tokens, dimensions], replaces `numbers`
    std::span<const float> scales;          // [tokens], with `codes`: finite and not negative
    std::span<const std::int64_t> offsets;  // [documents + 1]
};

// The instructions for products of codes. The results are the same on each level, bit for bit.
enum class MaxsimLevel {
    portable,     // instructions that every processor has
    avx2,         // AVX2
    avx512,       // AVX-512 (F, BW)
    avx512_vnni,  // AVX-512 with VNNI
    best,         // the highest level that the processor has
};

// The level that `best` stands for on this processor.
PYFAST_API MaxsimLevel maxsim_level();

struct MaxsimOptions {
    std::int64_t dimensions = 0;  // the length of a vector, at most 65,536
    int threads = 1;
    MaxsimLevel level = MaxsimLevel::best;  // throws Error if the processor lacks the level
};

// For each pair (query, document), the score
//   sum over the query's tokens q of max over the document's tokens d of q . d
// `pairs` is [scores, 2], `queries` is [tokens, dimensions], and `query_offsets` has queries + 1 entries.
//
// With `codes`, an integer product chooses the token d: for it, the query's vectors are rounded to 7 or 8 bits.
// The product with the chosen token is computed in float, from the query's own numbers. A document without tokens
// has the score -infinity, a query without tokens 0.
//
// One thread handles a pair. Time: O(query's tokens * document's tokens * dimensions). Queries are packed once.
// Only documents that pairs name are read and checked. Thread-safe. A score depends only on its pair. Throws Error
// for malformed input and for numbers that are not finite.
PYFAST_API void maxsim(std::span<const float> queries, std::span<const std::int64_t> query_offsets,
                       const TokenVectors& documents, std::span<const std::int64_t> pairs,
                       const MaxsimOptions& options, std::span<float> scores);

}  // namespace pyfast
