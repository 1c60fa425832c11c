// bm25: the best documents for each query by BM25, in Lucene's variant. The arrays of a part do not depend on the
// rest of the corpus. Document frequencies and the average length are computed for each query, from integers
// summed over all parts. So the scores equal those of an index that is built from scratch, bit for bit.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "pyfast/api.hpp"
#include "pyfast/pools.hpp"

namespace pyfast {

// How often each term occurs in the documents of one part of a corpus, by column (CSC).
struct TermCounts {
    std::span<const std::int64_t> indptr;     // [columns + 1]
    std::span<const std::int32_t> documents;  // ascending within a column; the first document of the part is 0
    std::span<const std::int32_t> counts;     // at least 1
    std::span<const std::int32_t> lengths;    // [documents of the part] the sum of the document's counts
    // [terms] the column of each term, -1: the part lacks it; empty: term t has column t
    std::span<const std::int32_t> columns{};
    // [documents of the part] not 0: deleted; empty: no document is deleted
    std::span<const std::uint8_t> deleted{};
    std::span<const std::uint8_t> small_counts{};  // replaces `counts` if all counts are below 256
};

struct Bm25Options {
    std::int64_t k = 20;  // the number of documents for each query
    double k1 = 1.5;
    double b = 0.75;
    std::int64_t documents = 0;     // the number of documents of all parts, without deleted ones
    std::int64_t total_length = 0;  // the sum of the lengths of these documents
    int threads = 1;
    // Pruning is used only if it saves more than this many entries of a query in a part. It changes only the time.
    std::int64_t prune_from = 100'000;
    // [queries] If these two are not empty, they have each query's own `documents` and `total_length`: the parts
    // then hold many small corpora without common columns, and all terms of a query belong to one of them.
    std::span<const std::int64_t> query_documents{};
    std::span<const std::int64_t> query_lengths{};
};

// For each query, the k documents with the largest score
//   sum over its terms t of ln(1 + (N - df + 1/2) / (df + 1/2)) tf / (tf + k1 (1 - b + b length / average))
// above 0, best first. A query is a list of term ids, and repeated terms count each time. If scores are equal, the
// lower document comes first. The documents of all parts are numbered in order.
//
// `allowed` has one ascending list of documents for each query, or one list for all. Only these documents are
// found. `allowed` changes no score: frequencies and lengths are those of the whole corpus.
//
// Documents are scored in windows that fit into the first-level cache, so memory does not grow with the corpus.
// Time: O(entries of the query's columns). If there are many and `allowed` is not given, pruning (MaxScore) saves
// most of them: a document without the rarer terms is skipped if the other terms cannot lift it above the k best
// found so far. Only entries that are read are checked. Thread-safe. The result of a query depends only on the
// query. Throws Error for malformed input.
PYFAST_API RankedPools bm25(std::span<const TermCounts> parts, const Ragged<std::int32_t>& queries,
                            const std::optional<Ragged<std::int32_t>>& allowed, const Bm25Options& options);

}  // namespace pyfast
