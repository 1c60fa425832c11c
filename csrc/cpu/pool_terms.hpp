// The terms of one pool, numbered 1..m in the order of their first occurrence. A workspace that is reused from
// pool to pool.
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
    // Reads and checks the rows of the pool. The df of a masked term is 0. With Idf::pool, the rows are then
    // weighed by the idf of the pool, including masked terms. The result keeps its own numbers: `number` and `df`
    // fit each other, even if another thread changes the index.
    void gather(const Forward& x, std::span<const std::int32_t> documents, std::span<const std::int32_t> masked,
                Idf idf = Idf::corpus);

    [[nodiscard]] std::size_t documents() const { return rows.size(); }
    [[nodiscard]] std::size_t terms() const { return count_; }  // numbers start at 1; 0 is unused
    [[nodiscard]] std::span<const std::int32_t> numbers(std::size_t i) const {
        return {number.data() + begin[i], begin[i + 1] - begin[i]};
    }

    std::vector<Row> rows;
    std::vector<std::size_t> begin;    // row i has the entries begin[i] to begin[i + 1]
    std::vector<std::int32_t> number;  // the number of each entry's term
    std::vector<std::int32_t> df;      // for each number: how many documents of the pool have the term

    void trim();

  private:
    void weigh();

    // Maps a term id to base_ plus its number in the pool. A value up to base_ belongs to an earlier pool. So
    // nothing is cleared between pools, and the time of a pool depends only on its own entries.
    Zeroed<std::int32_t> table_;
    RowMemory memory_;            // for rows that are not read in place
    std::vector<double> idf_;     // for each number
    std::vector<float> weighed_;  // the entries weighed by the pool's idf, row by row
    std::int32_t base_ = 0;
    std::size_t count_ = 0;
};

}  // namespace pyfast
