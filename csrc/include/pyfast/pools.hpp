// What every op of a pool reads: the forward index, the pools, and ragged lists beside them.
//
// All types here but RankedPools are views: they own nothing, and the caller keeps the memory alive during the
// call. Any number of calls may read the same memory at once. Ops check what they read before they use it, so that
// no contents of these arrays can make them touch memory outside; the lengths of the spans are believed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "pyfast/api.hpp"
#include "pyfast/error.hpp"

namespace pyfast {

// A forward index X in CSR: documents x terms, one TF-IDF weight per stored entry.
//
// Term ids of a row are strictly increasing and below `terms`; weights lie in [0, largest_weight]. Ops check this
// for the rows that they touch, so a call costs what its pools cost, whatever the size of the corpus.
struct Forward {
    // Sums of a million products of two such weights are still finite in float.
    static constexpr float largest_weight = 1e16f;

    // Row offsets, 64 or 32 bits wide (SciPy narrows them where it can): exactly one of the two is used.
    std::span<const std::int64_t> indptr64;
    std::span<const std::int32_t> indptr32;
    std::span<const std::int32_t> indices;
    std::span<const float> weights;
    std::int64_t terms = 0;

    [[nodiscard]] std::int64_t documents() const {
        const std::size_t n = indptr64.empty() ? indptr32.size() : indptr64.size();
        return n == 0 ? 0 : static_cast<std::int64_t>(n) - 1;
    }
    [[nodiscard]] std::int64_t offset(std::int64_t document) const {
        const auto d = static_cast<std::size_t>(document);
        return indptr64.empty() ? indptr32[d] : indptr64[d];
    }
};

// One row of the forward index.
struct Row {
    std::span<const std::int32_t> terms;
    std::span<const float> weights;
};

// The entries of row `i`, not looked at yet. Throws Error, which `name` opens, where they do not lie inside the
// index.
PYFAST_API Row row_of(const Forward& x, std::int32_t i, const char* name);

// Throws Error unless the columns of row `i` are strictly increasing and below `columns`, and its weights usable.
PYFAST_API void check_row(const Row& row, std::int64_t columns, const char* name, std::int32_t i);

// The row of one document. Throws Error where the row does not lie inside the index or is malformed.
PYFAST_API Row checked_row(const Forward& x, std::int32_t document);

// Where the idf of the terms comes from.
enum class Idf {
    corpus,  // X holds weights, its idf among them
    // X holds term frequencies; each pool is weighed as a corpus of its own: tf * (ln((1 + n) / (1 + df)) + 1)
    // with n documents, df of which hold the term, then rows l2-normalised, as scikit-learn's TfidfTransformer
    // does.
    pool,
};

// A ragged list of lists: list p is values[offsets[p] .. offsets[p + 1]).
template <class T>
struct Ragged {
    std::span<const std::int64_t> offsets;
    std::span<const T> values;

    [[nodiscard]] std::size_t size() const { return offsets.empty() ? 0 : offsets.size() - 1; }
    [[nodiscard]] std::span<const T> operator[](std::size_t p) const {
        return values.subspan(static_cast<std::size_t>(offsets[p]),
                              static_cast<std::size_t>(offsets[p + 1] - offsets[p]));
    }
};

// Pool p is the list of documents docs[offsets[p] .. offsets[p + 1]), in retrieval order.
using Pools = Ragged<std::int32_t>;

// Pools that an op has found, best first, as it gives them back.
struct RankedPools {
    std::vector<std::int64_t> offsets{0};
    std::vector<std::int32_t> documents;
    std::vector<float> scores;
};

// List i of a ragged array that is too large to be checked as a whole: a call costs what it touches, not what the
// corpus does. Throws Error where there is no such list, or where it does not lie inside the values.
template <class T>
std::span<const T> checked_list(const Ragged<T>& lists, std::int64_t i, const char* name) {
    if (i < 0 || i >= static_cast<std::int64_t>(lists.size())) {
        throw Error(std::string(name) + ": there is no " + std::to_string(i) + " among " +
                    std::to_string(lists.size()));
    }
    const std::int64_t first = lists.offsets[static_cast<std::size_t>(i)];
    const std::int64_t last = lists.offsets[static_cast<std::size_t>(i) + 1];
    if (first < 0 || last < first || last > static_cast<std::int64_t>(lists.values.size())) {
        throw Error(std::string(name) + ": list " + std::to_string(i) + " spans " + std::to_string(first) +
                    " to " + std::to_string(last) + " of " + std::to_string(lists.values.size()) + " values");
    }
    return lists[static_cast<std::size_t>(i)];
}

// Throws Error unless offsets start at 0, never decrease and end at `values`; `name` opens the message.
PYFAST_API void check_offsets(std::span<const std::int64_t> offsets, std::size_t values, const char* name);

// Throws Error where a document is not one of the forward index; `name` opens the message.
PYFAST_API void check_documents(const Forward& x, std::span<const std::int32_t> documents,
                                const char* name = "doc_ids");

// Throws Error where a term is not one of the forward index.
PYFAST_API void check_masked(const Forward& x, std::span<const std::int32_t> terms);

// Throws Error where a score is not finite; `name` opens the message.
PYFAST_API void check_finite(std::span<const float> scores, const char* name);

}  // namespace pyfast
