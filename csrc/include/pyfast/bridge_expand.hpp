// bridge_expand: the documents of the whole corpus that are nearest to the best documents of a pool, without the
// question's own words. The first search often misses what the second hop needs. (An op of pyfast's own)
#pragma once

#include <cstdint>
#include <optional>

#include "pyfast/api.hpp"
#include "pyfast/pools.hpp"

namespace pyfast {

struct BridgeExpandOptions {
    std::int64_t k = 10;  // the number of documents for each seed
    // An upper bound of the rows' Euclidean norms: 1 if rows are l2-normalised. Without it, the op reads the whole
    // index to compute one. With a bound that is too small, some documents are missed, but nothing worse happens.
    std::optional<float> largest_norm{};
    // The maximum number of entries that are read for a seed in the transposed index, and also the maximum in the
    // rows of the documents found there. With a limit, some of the nearest documents may be missed.
    std::int64_t max_entries = INT64_MAX;
    int threads = 1;
};

// For each seed s of list q, the k documents j != s with the largest similarity
//   sum over t in T(s) and T(j), t not in question_terms[q], of x_st x_jt
// above 0, best first. If similarities are equal, the lower document id comes first. The result has one list for
// each seed.
//
// The result is exact unless `max_entries` ends the search early. The op reads the seed's terms in descending
// order of weight^2 / frequency. It stops when the remaining terms can no longer bring a new document into the
// best k: they add at most their norm times `largest_norm` (Cauchy-Schwarz). Then it scores the documents that it
// met, the most promising first, as long as one can still be among the best k.
//
// `transposed` is X transposed: terms x documents. Time: O(entries of the terms that are read) for each seed.
// Memory: O(documents + terms) for each thread. Only rows that are read are checked. Thread-safe. The result of a
// seed depends only on the seed and its question. Throws Error for malformed input.
PYFAST_API RankedPools bridge_expand(const Forward& x, const Forward& transposed,
                                     const Ragged<std::int32_t>& seeds, const Ragged<std::int32_t>& question_terms,
                                     const BridgeExpandOptions& options);

}  // namespace pyfast
