#include "pool_matrix.hpp"

#include <algorithm>
#include <cstring>

#include "multiversion.hpp"
#include "reused.hpp"

namespace pyfast {

namespace {

// to[0 .. Width registers) of the product; the sums stay in registers.
template <std::size_t Width>
[[gnu::always_inline]] inline void push_block(const double* values, std::size_t rows, std::size_t stride,
                                              const double* from, double* to) {
    Doubles sums[Width] = {};
    for (std::size_t i = 0; i < rows; ++i) {
        for (std::size_t v = 0; v < Width; ++v) {
            Doubles m;
            std::memcpy(&m, values + i * stride + v * lanes_of_doubles, sizeof m);
            sums[v] += from[i] * m;
        }
    }
    std::memcpy(to, sums, sizeof sums);
}

PYFAST_MULTIVERSION void push_dense(const double* values, std::size_t rows, std::size_t stride,
                                    const double* from, double* to) {
    std::size_t first = 0;
    for (; first + 4 * lanes_of_doubles <= stride; first += 4 * lanes_of_doubles) {
        push_block<4>(values + first, rows, stride, from, to + first);
    }
    switch ((stride - first) / lanes_of_doubles) {
        case 3: push_block<3>(values + first, rows, stride, from, to + first); break;
        case 2: push_block<2>(values + first, rows, stride, from, to + first); break;
        case 1: push_block<1>(values + first, rows, stride, from, to + first); break;
        default: break;
    }
}

}  // namespace

void PoolMatrix::read(const PoolEdges& pool, std::span<const double> factors) {
    pool_ = pool;
    const std::size_t n = pool.nodes();
    padded_ = padded_to_lanes(n);
    // A stored edge costs as much as eight entries of a dense row; and a dense matrix shall fit a cache.
    constexpr std::size_t largest = 1024;
    dense_ = n <= largest && pool.edges() * 8 >= n * n;
    if (dense_) {
        values_.assign(n * padded_, 0.0);
    } else {
        values_.resize(pool.edges());
    }
    for (std::size_t i = 0; i < n; ++i) {
        const auto [indices, weights] = pool.row(i);
        const double factor = factors[i];
        if (dense_) {
            double* const row = values_.data() + i * padded_;
            for (std::size_t e = 0; e < indices.size(); ++e) {
                row[indices[e]] = static_cast<double>(weights[e]) * factor;
            }
        } else {
            double* const row = values_.data() + pool.begin(i);
            for (std::size_t e = 0; e < indices.size(); ++e) {
                row[e] = static_cast<double>(weights[e]) * factor;
            }
        }
    }
}

void PoolMatrix::push(const double* from, double* to) const {
    const std::size_t n = pool_.nodes();
    if (dense_) {
        push_dense(values_.data(), n, padded_, from, to);
        return;
    }
    std::fill_n(to, padded_, 0.0);
    for (std::size_t i = 0; i < n; ++i) {
        const double x = from[i];
        for (std::size_t e = pool_.begin(i); e < pool_.begin(i + 1); ++e) {
            to[pool_.indices[e]] += x * values_[e];
        }
    }
}

void PoolMatrix::trim() { pyfast::trim(values_); }

}  // namespace pyfast
