// What all ops on pools read: the forward index, the pools, and ragged lists for them.
//
// Most types here are views: the caller keeps the memory alive during the call. Several calls may read the same
// memory at once. If someone writes to it meanwhile, the result is undefined. Ops check what they read before they
// use it. So no contents of these arrays can make an op access memory outside the spans. The lengths of the spans
// are trusted.
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

// A forward index X in CSR: documents x terms, with one TF-IDF weight for each entry.
//
// Term ids are below `terms`, and weights are in [0, largest_weight]. An op checks this for the rows that it
// reads, so the time of a call depends on its pools, not on the size of the corpus. A row whose term ids are
// strictly increasing is read in place. Any other row is sorted into memory first, and weights of the same term
// are added up; this takes about ten times as long. An op never writes to the index.
struct Forward {
    // A sum of a million products of two such weights is still finite in float.
    static constexpr float largest_weight = 1e16f;

    // Row offsets with 64 or 32 bits (SciPy uses 32 if they are enough). Exactly one of the two is used.
    std::span<const std::int64_t> indptr64;
    std::span<const std::int32_t> indptr32;
    std::span<const std::int32_t> indices;
    std::span<const float> weights;
    std::int64_t terms = 0;
    // These replace `indices` or `weights` if those are wider. Ops on the CPU convert each row when they read it.
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

// One row of the forward index, sorted by term id.
struct Row {
    std::span<const std::int32_t> terms;
    std::span<const float> weights;
};

// Memory for rows that cannot be read in place. A row stays valid until clear(), which keeps the memory for later
// rows.
class RowMemory {
  public:
    struct Entries {
        std::vector<std::int32_t> terms;
        std::vector<float> weights;
    };
    std::vector<std::uint64_t> keys;  // keys to sort a row by

    Entries& next() { return used_ < rows_.size() ? rows_[used_++] : (++used_, rows_.emplace_back()); }
    void clear() { used_ = 0; }

    // Frees the memory if it is larger than 32 MB.
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

// The bounds of the entries of row `i`. Throws Error, with a message that begins with `name`, if they are outside
// the index.
struct Extent {
    std::size_t begin;
    std::size_t size;
};
PYFAST_API Extent extent_of(const Forward& x, std::int32_t i, const char* name);

// Row `i` of the index: in place, or converted into `memory` if it is not sorted or is wider. Throws Error, with a
// message that begins with `name`, unless the term ids are below `terms` and the weights are valid.
PYFAST_API Row checked_row(const Forward& x, std::int32_t i, RowMemory& memory, const char* name = "X");

// Where the terms' idf comes from.
enum class Idf {
    corpus,  // X has weights that contain the idf
    // X has term frequencies, and each pool is weighed as a corpus of its own: tf * (ln((1 + n) / (1 + df)) + 1),
    // with n documents of which df have the term. Then rows are l2-normalised, as scikit-learn's TfidfTransformer
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

// Pool p is the list of documents docs[offsets[p] .. offsets[p + 1]), in the order of retrieval.
using Pools = Ragged<std::int32_t>;

// The pools that an op has found, best document first.
struct RankedPools {
    std::vector<std::int64_t> offsets{0};
    std::vector<std::int32_t> documents;
    std::vector<float> scores;
};

// List i of a ragged array. Only this list is checked, so the time of a call depends on what it reads, not on the
// size of the corpus. Throws Error if the list does not exist, or is outside the values.
template <class T>
std::span<const T> checked_list(const Ragged<T>& lists, std::int64_t i, const char* name) {
    if (i < 0 || i >= static_cast<std::int64_t>(lists.size())) {
        throw Error(std::string(name) + ": there is no list " + std::to_string(i) +
                    "; number of lists: " + std::to_string(lists.size()));
    }
    const std::int64_t first = lists.offsets[static_cast<std::size_t>(i)];
    const std::int64_t last = lists.offsets[static_cast<std::size_t>(i) + 1];
    if (first < 0 || last < first || last > static_cast<std::int64_t>(lists.values.size())) {
        throw Error(std::string(name) + ": list " + std::to_string(i) + " starts at " + std::to_string(first) +
                    " and ends at " + std::to_string(last) +
                    "; number of values: " + std::to_string(lists.values.size()));
    }
    return lists.values.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first));
}

// Throws Error unless offsets start at 0, never decrease and end at `values`. The message begins with `name`.
PYFAST_API void check_offsets(std::span<const std::int64_t> offsets, std::size_t values, const char* name);

// Throws Error if a document is not in the forward index. The message begins with `name`.
PYFAST_API void check_documents(const Forward& x, std::span<const std::int32_t> documents,
                                const char* name = "doc_ids");

// Throws Error if a term is not in the forward index.
PYFAST_API void check_masked(const Forward& x, std::span<const std::int32_t> terms);

// Throws Error if a score is not finite. The message begins with `name`.
PYFAST_API void check_finite(std::span<const float> scores, const char* name);

}  // namespace pyfast
