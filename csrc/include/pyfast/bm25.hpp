// bm25: the best documents for each query by BM25, in the variant that Lucene uses. Nothing in the arrays depends
// on the rest of the corpus: document frequencies and the average length are counted when a query is answered, as
// integers over all parts, so that the scores are those of an index built from scratch, bit for bit.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "pyfast/api.hpp"
#include "pyfast/pools.hpp"

namespace pyfast {

// How often the terms occur in the documents of one part of a corpus, by column (CSC).
struct TermCounts {
    std::span<const std::int64_t> indptr;     // [columns + 1]
    std::span<const std::int32_t> documents;  // ascending within a column, counted from the part's first
    std::span<const std::int32_t> counts;     // at least 1
    std::span<const std::int32_t> lengths;    // [the part's documents] the sum of a document's counts
    std::span<const std::int32_t> columns{};  // [terms] where a term is, -1: not here; empty: term t is column t
    std::span<const std::uint8_t> deleted{};  // [the part's documents] not 0: deleted; empty: none is
    std::span<const std::uint8_t> small_counts{};  // in place of `counts`, where all are below 256
};

struct Bm25Options {
    std::int64_t k = 20;  // documents found for each query
    double k1 = 1.5;
    double b = 0.75;
    std::int64_t documents = 0;     // of all parts together, without those deleted
    std::int64_t total_length = 0;  // of these
    int threads = 1;
};

// For each query (term ids, repetitions count) the k documents of the largest score
//     sum over its terms t of ln(1 + (N - df + 1/2) / (df + 1/2)) tf / (tf + k1 (1 - b + b length / average))
// above 0, best first. Ties: the lower document. Documents are numbered through all parts, in their order.
//
// `allowed` has one list of documents, ascending, for each query, or one for all: no other is found. It changes no
// score: frequencies and lengths are those of the whole corpus.
//
// Documents are scored in windows that fit the first-level cache, so the memory does not grow with the corpus.
// O(entries of the query's columns) time. Only what is touched is checked. Thread-safe; a query's result depends
// on nothing but the query. Throws Error on malformed input.
PYFAST_API RankedPools bm25(std::span<const TermCounts> parts, const Ragged<std::int32_t>& queries,
                            const std::optional<Ragged<std::int32_t>>& allowed, const Bm25Options& options);

}  // namespace pyfast
