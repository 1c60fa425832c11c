// The edge weights of one pool, a row at a time. Shared by evidence_graph, weighted_degree and bridge_rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "pool_terms.hpp"
#include "pyfast/evidence_graph.hpp"

namespace pyfast {

// Call terms.gather(), then prepare(), then row(i) for any i, each once.
//
// A term that many of the pool's documents hold is a dense column, added by vector instructions; a rare one is a
// short list of documents. In a small pool the rare terms are added pair by pair into the full matrix, lists of
// one length after the other, so that the processor can foresee the loops; in a large one row by row, with
// memory for one row. Both ways the additions to (i, j) and to (j, i) come in the same order: the matrix is
// symmetric bit for bit.
class PoolGraph {
  public:
    PoolTerms terms;

    // A function stands in place of the weight; all terms are then lists, added row by row.
    void prepare(EdgeWeight weight, TermWeight function = nullptr);

    // Weights from node i to every node, `documents()` of them; the entry of i itself means nothing.
    std::span<float> row(std::size_t i);

    // The same in the caller's memory, so that several threads may ask for rows, each any number of times. In a
    // large pool only: where `by_rows(documents())`.
    std::span<float> row(std::size_t i, std::vector<float>& memory) const;

    // Whether a pool of n documents is a large one.
    [[nodiscard]] static bool by_rows(std::size_t n);

    void trim();

    // One entry of a row whose term has a dense column.
    struct Frequent {
        std::int32_t place;  // of the column, among value_
        float weight;
    };

  private:
    // Where a term's entries are stored: place + (document & keep), place growing by step.
    struct Layout {
        std::int32_t place;
        std::int32_t step;
        std::int32_t keep;
    };

    // The terms of one document frequency: where the next of them goes, and what it takes.
    struct Kind {
        Layout next;
        std::int32_t size;
    };

    void lay_out();
    void store_entries();
    template <class Weight>
    void add_rare_pairs(Weight weight);
    template <class Weight>
    void add_rare_row(std::size_t i, float* row, Weight weight) const;
    void add_columns(std::size_t i, float* row) const;

    EdgeWeight weight_ = EdgeWeight::sum;
    TermWeight function_ = nullptr;
    bool small_ = true;
    std::size_t stride_ = 0;           // documents, rounded up to whole vectors
    std::vector<std::size_t> shared_;  // terms that two documents or more hold
    std::vector<Layout> layout_;       // per term
    std::vector<std::size_t> lists_;   // per list length: number of terms; the last: of columns
    std::vector<Kind> kinds_;
    std::vector<std::int32_t> list_begin_;  // per term: its list in a large pool
    std::vector<float> value_;              // [nothing, lists, columns]
    std::vector<std::int32_t> document_;    // the documents of the lists
    std::vector<Frequent> frequent_;        // entries with a column, row by row
    std::vector<std::size_t> frequent_begin_;
    std::vector<float> matrix_;  // small pool: stride_ x documents; large: one row
};

}  // namespace pyfast
