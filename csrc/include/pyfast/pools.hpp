// What every op of a pool reads: the forward index, the pools, and ragged lists beside them.
//
// Most types here are views: they own nothing, and the caller keeps the memory alive during the call. Any number
// of calls may read the same memory at once, and nobody may write to it meanwhile: what a call gives then means
// nothing. Ops check what they read before they use it, so that no contents of these arrays can make them touch
// memory outside; the lengths of the spans are believed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "pyfast/api.hpp"
#include "pyfast/error.hpp"

namespace pyfast {

// A forward index X in CSR: documents x terms, one TF-IDF weight per stored entry.
//
// Term ids are below `terms`; weights lie in [0, largest_weight]. Ops check this for the rows that they touch, so
// a call costs what its pools cost, at any size of the corpus. Rows whose term ids are strictly increasing
// are read where they lie; others are put in order as they are read, with the weights of a term that is there
// several times added up, at some ten times the cost of reading them. Nothing is ever written to the index.
struct Forward {
    // Sums of a million products of two such weights are still finite in float.
    static constexpr float largest_weight = 1e16f;

    // Row offsets, 64 or 32 bits wide (SciPy narrows them where it can): exactly one of the two is used.
    std::span<const std::int64_t> indptr64;
    std::span<const std::int32_t> indptr32;
    std::span<const std::int32_t> indices;
    std::span<const float> weights;
    std::int64_t terms = 0;
    // In place of `indices` or `weights`, where they are wider: each row is converted as it is read, by the ops on
    // the CPU.
    std::span<const std::int64_t> indices64{};
    std::span<const double> weights64{};

    [[nodiscard]] std::int64_t documents() const {
        const std::size_t n = indptr64.empty() ? indptr32.size() : indptr64.size();
        return n == 0 ? 0 : static_cast<std::int64_t>(n) - 1;
    }
    [[nodiscard]] std::int64_t offset(std::int64_t document) const {
        const auto d = static_cast<std::size_t>(document);
        return indptr64.empty() ? indptr32[d] : indptr64[d];
    }
};

// One row of the forward index, in order.
struct Row {
    std::span<const std::int32_t> terms;
    std::span<const float> weights;
};

// Memory for rows that cannot be read where they lie. A row stays where it is until clear(), which keeps the
// memory for the rows to come.
class RowMemory {
  public:
    struct Entries {
        std::vector<std::int32_t> terms;
        std::vector<float> weights;
    };
    std::vector<std::uint64_t> keys;  // to put a row in order by

    Entries& next() { return used_ < rows_.size() ? rows_[used_++] : (++used_, rows_.emplace_back()); }
    void clear() { used_ = 0; }

    // Frees more than 32 MB.
    void trim() {
        std::size_t entries = 0;
        for (const Entries& row : rows_) {
            entries += row.terms.capacity();
        }
        if (entries > (std::size_t{4} << 20)) {
            *this = {};
        }
    }

  private:
    std::deque<Entries> rows_;
    std::size_t used_ = 0;
};

// Where the entries of row `i` lie. Throws Error, which `name` opens, where that is not inside the index.
struct Extent {
    std::size_t begin;
    std::size_t size;
};
PYFAST_API Extent extent_of(const Forward& x, std::int32_t i, const char* name);

// Row `i`, one of the index's: its own memory, or where that is not in order or wider, `memory`. Throws Error,
// which `name` opens, unless the columns lie below `terms` and the weights are usable.
PYFAST_API Row checked_row(const Forward& x, std::int32_t i, RowMemory& memory, const char* name = "X");

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
    return lists.values.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first));
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
