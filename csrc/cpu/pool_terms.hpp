// The terms of one pool, numbered 1..m in order of first appearance. A workspace: reused from pool to pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "pyfast/pools.hpp"
#include "zeroed.hpp"

namespace pyfast {

class PoolTerms {
  public:
    // Reads and checks the pool's rows. Masked terms count as held by no document: their df is 0.
    // With Idf::pool the rows are then weighed by the pool's own idf, masked terms and all.
    // What it numbers is numbered for good: `number` and `df` go together whatever becomes of the index meanwhile.
    void gather(const Forward& x, std::span<const std::int32_t> documents, std::span<const std::int32_t> masked,
                Idf idf = Idf::corpus);

    [[nodiscard]] std::size_t documents() const { return rows.size(); }
    [[nodiscard]] std::size_t terms() const { return count_; }  // numbers run from 1; 0 is nobody's
    [[nodiscard]] std::span<const std::int32_t> numbers(std::size_t i) const {
        return {number.data() + begin[i], begin[i + 1] - begin[i]};
    }

    std::vector<Row> rows;
    std::vector<std::size_t> begin;    // entries of row i: begin[i] to begin[i + 1]
    std::vector<std::int32_t> number;  // of each entry's term
    std::vector<std::int32_t> df;      // of each number: documents of the pool that hold the term

    void trim();

  private:
    void weigh();

    // From the index's term ids to base_ plus the pool's numbers. What is not above base_ is an earlier pool's, so
    // nothing is cleared between pools, and a pool costs what its own entries cost.
    Zeroed<std::int32_t> table_;
    RowMemory memory_;            // of rows that are not read where they lie
    std::vector<double> idf_;     // of each number
    std::vector<float> weighed_;  // entries by the pool's own idf, row by row
    std::int32_t base_ = 0;
    std::size_t count_ = 0;
};

}  // namespace pyfast
