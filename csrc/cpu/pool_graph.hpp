// The edge weights of one pool, row by row. evidence_graph, weighted_degree and bridge_rank use it.
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
// A term that many documents of the pool have is a dense column, which vector instructions add. A rare term is a
// short list of documents. In a small pool, the rare terms are added pair by pair into the full matrix. Lists of
// one length follow each other, so that the processor can predict the loops. In a large pool, they are added row
// by row, with memory for one row. Both ways add to (i, j) and to (j, i) in the same order, so the matrix is
// symmetric bit for bit.
class PoolGraph {
  public:
    PoolTerms terms;

    // A function replaces the weight. Then all terms are lists, which are added row by row.
    void prepare(EdgeWeight weight, TermWeight function = nullptr);

    // The weights from node i to each of the `documents()` nodes. The entry of i itself has no meaning.
    std::span<float> row(std::size_t i);

    // The same in the caller's memory, so that several threads can ask for rows, any number of times. Only for
    // large pools, for which `by_rows(documents())` is true.
    std::span<float> row(std::size_t i, std::vector<float>& memory) const;

    // Whether a pool of n documents is large.
    [[nodiscard]] static bool by_rows(std::size_t n);

    void trim();

    // An entry of a row whose term has a dense column.
    struct Frequent {
        std::int32_t place;  // where the column begins in value_
        float weight;
    };

  private:
    // Where the entries of a term are stored: place + (document & keep). `place` grows by `step`.
    struct Layout {
        std::int32_t place;
        std::int32_t step;
        std::int32_t keep;
    };

    // For the terms of one document frequency: the layout of the next one, and the size of each.
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
    std::size_t stride_ = 0;           // the number of documents, rounded up to whole vectors
    std::vector<std::size_t> shared_;  // terms that at least two documents have
    std::vector<Layout> layout_;       // for each term
    std::vector<std::size_t> lists_;   // the number of terms for each length of a list; the last one: of columns
    std::vector<Kind> kinds_;
    std::vector<std::int32_t> list_begin_;  // for each term: where its list begins in a large pool
    std::vector<float> value_;              // place 0, which is never read, then the lists, then the columns
    std::vector<std::int32_t> document_;    // the documents of the lists
    std::vector<Frequent> frequent_;        // entries with a column, row by row
    std::vector<std::size_t> frequent_begin_;
    std::vector<float> matrix_;  // small pool: stride_ x documents; large: one row
};

}  // namespace pyfast
