// The adjacency of one pool as a matrix to multiply with, again and again: dense where edges are many.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "pyfast/graphs.hpp"

namespace pyfast {

class PoolMatrix {
  public:
    // Vectors that go in and out are this long: n, rounded up to whole registers. What is beyond n stays 0.
    [[nodiscard]] std::size_t padded() const { return padded_; }

    // Reads the pool, which must outlive the matrix; each row is multiplied by its factor.
    void read(const PoolEdges& pool, std::span<const double> factors);

    // to_j = sum over rows i of from_i * m_ij, rows in order: what every node is given by those that lead to it.
    void push(const double* from, double* to) const;

    void trim();

  private:
    PoolEdges pool_;
    std::size_t padded_ = 0;
    bool dense_ = false;
    std::vector<double> values_;  // dense: n x padded; else one per edge
};

// Round up to whole registers of doubles.
constexpr std::size_t lanes_of_doubles = 8;
constexpr std::size_t padded_to_lanes(std::size_t n) {
    return (n + lanes_of_doubles - 1) / lanes_of_doubles * lanes_of_doubles;
}
using Doubles [[gnu::vector_size(lanes_of_doubles * sizeof(double))]] = double;

}  // namespace pyfast
