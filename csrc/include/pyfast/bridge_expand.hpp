// bridge_expand: the documents of the whole corpus that are nearest to a pool's best ones, beyond the question's
// words. What a second hop needs is often not in the first hop's pool at all. (pyfast's own)
#pragma once

#include <cstdint>
#include <optional>

#include "pyfast/api.hpp"
#include "pyfast/pools.hpp"

namespace pyfast {

struct BridgeExpandOptions {
    std::int64_t k = 10;  // documents found for each seed
    // At least the largest Euclidean norm of a row: 1 where rows are l2-normalised. Found by a pass over the whole
    // index where it is not given. Too small a number loses documents, and nothing else.
    std::optional<float> largest_norm{};
    // How many entries of the transposed index, and then of the rows of documents met, are read for a seed. With a
    // limit some of the nearest may be missed.
    std::int64_t max_entries = INT64_MAX;
    int threads = 1;
};

// For every seed s of list q the k documents j != s of largest similarity
//     sum over t in T(s) and T(j), t not in question_terms[q], of x_st x_jt
// above 0, best first (ties: the lower document id); one list of the result per seed.
//
// Exact, unless `max_entries` cuts it short: terms are taken up in the order of weight^2 / frequency until the
// norm of what is left of the seed, times `largest_norm`, cannot bring a document that was not met into the best k
// (Cauchy-Schwarz); then the documents met are scored, the most promising first, while they can still get in.
//
// `transposed` is X transposed: terms x documents. O(entries of the terms taken up) time a seed, O(documents +
// terms) memory a thread. Only the rows that are touched are checked. Thread-safe; a seed's result depends on
// nothing but the seed and its question. Throws Error on malformed input.
PYFAST_API RankedPools bridge_expand(const Forward& x, const Forward& transposed,
                                     const Ragged<std::int32_t>& seeds, const Ragged<std::int32_t>& question_terms,
                                     const BridgeExpandOptions& options);

}  // namespace pyfast
