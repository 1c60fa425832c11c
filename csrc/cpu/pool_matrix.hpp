// The adjacency matrix of one pool for repeated products. It is dense if the graph has many edges.
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

// For inner loops that multiply a number and a vector. With vectors of 64 bytes, such a product goes through
// memory on processors with 32-byte registers, and takes twenty times as long.
using Quad [[gnu::vector_size(4 * sizeof(double))]] = double;
using Octet [[gnu::vector_size(8 * sizeof(float))]] = float;

constexpr std::size_t rounded_up(std::size_t n, std::size_t lanes) { return (n + lanes - 1) / lanes * lanes; }

// to_j = sum over rows i of from_i * m_ij, in the order of the rows. A row has `stride` numbers, a multiple of the
// lanes.
void push_rows(const double* values, std::size_t rows, std::size_t stride, const double* from, double* to);

class PoolMatrix {
  public:
    // Reads the pool, which must outlive the matrix. With a damping, each row is multiplied by damping / its total
    // (a row whose total is 0 stays 0). Otherwise rows are unchanged.
    void read(const PoolEdges& pool, std::optional<double> damping);

    // The length of vectors for the product: n, rounded up. Entries beyond n are 0 and stay 0.
    [[nodiscard]] std::size_t padded() const { return rounded_up(pool_.nodes(), lanes_of_floats); }

    [[nodiscard]] std::span<const double> totals() const { return totals_; }

    // to_j = sum over rows i of from_i * m_ij: each node gets the sum over the nodes that lead to it.
    void push(const double* from, double* to) const;

    // push() in float takes half the time, but needs a dense matrix.
    [[nodiscard]] bool dense() const { return dense_; }
    void push(const float* from, float* to) const;

    void trim();

  private:
    PoolEdges pool_;
    bool dense_ = false;
    std::vector<double> totals_;
    Aligned<double> values_;  // dense: n rows of n numbers, rounded up to registers; otherwise one for each edge
    Aligned<float> rough_;    // dense: the same in float
};

}  // namespace pyfast
