// The adjacency of one pool as a matrix to multiply with, again and again: dense where edges are many.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "aligned.hpp"
#include "pyfast/graphs.hpp"

namespace pyfast {

constexpr std::size_t lanes_of_doubles = 8;
constexpr std::size_t lanes_of_floats = 16;
using Doubles [[gnu::vector_size(lanes_of_doubles * sizeof(double))]] = double;
using Floats [[gnu::vector_size(lanes_of_floats * sizeof(float))]] = float;

// A number times one of 64 bytes goes through memory where registers have 32, and takes twenty times as long: for
// inner loops with such products.
using Quad [[gnu::vector_size(4 * sizeof(double))]] = double;
using Octet [[gnu::vector_size(8 * sizeof(float))]] = float;

constexpr std::size_t rounded_up(std::size_t n, std::size_t lanes) { return (n + lanes - 1) / lanes * lanes; }

// to_j = sum over rows i of from_i * m_ij, rows in order; a row is `stride` numbers long, a multiple of the lanes.
void push_rows(const double* values, std::size_t rows, std::size_t stride, const double* from, double* to);

class PoolMatrix {
  public:
    // Reads the pool, which must outlive the matrix. With a damping each row is multiplied by damping / its total
    // (a row whose total is 0 stays 0); else it is taken as it is.
    void read(const PoolEdges& pool, std::optional<double> damping);

    // Vectors that go in and out are this long: n, rounded up. What is beyond n is 0, and stays so.
    [[nodiscard]] std::size_t padded() const { return rounded_up(pool_.nodes(), lanes_of_floats); }

    [[nodiscard]] std::span<const double> totals() const { return totals_; }

    // to_j = sum over rows i of from_i * m_ij: what every node is given by those that lead to it.
    void push(const double* from, double* to) const;

    // The same in half the time, where the matrix is dense.
    [[nodiscard]] bool dense() const { return dense_; }
    void push(const float* from, float* to) const;

    void trim();

  private:
    PoolEdges pool_;
    bool dense_ = false;
    std::vector<double> totals_;
    Aligned<double> values_;  // dense: n rows of n, rounded up to registers; else one per edge
    Aligned<float> rough_;    // dense: the same in float
};

}  // namespace pyfast
