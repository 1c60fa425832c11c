#include "pool_matrix.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "multiversion.hpp"
#include "reused.hpp"

namespace pyfast {

namespace {

// to[0 .. Width vectors) of the product. The sums stay in registers.
template <class Vector, std::size_t Width, class T>
[[gnu::always_inline]] inline void push_block(const T* values, std::size_t rows, std::size_t stride, const T* from,
                                              T* to) {
    Vector sums[Width] = {};
    for (std::size_t i = 0; i < rows; ++i) {
        for (std::size_t v = 0; v < Width; ++v) {
            Vector m;
            std::memcpy(&m, values + i * stride + v * (sizeof m / sizeof(T)), sizeof m);
            sums[v] += from[i] * m;
        }
    }
    std::memcpy(to, sums, sizeof sums);
}

// The stride is an even number of vectors.
template <class Vector, class T>
[[gnu::always_inline]] inline void push_dense(const T* values, std::size_t rows, std::size_t stride, const T* from,
                                              T* to) {
    constexpr std::size_t lanes = sizeof(Vector) / sizeof(T);
    std::size_t first = 0;
    for (; first + 8 * lanes <= stride; first += 8 * lanes) {
        push_block<Vector, 8>(values + first, rows, stride, from, to + first);
    }
    switch ((stride - first) / lanes) {
        case 6: push_block<Vector, 6>(values + first, rows, stride, from, to + first); break;
        case 4: push_block<Vector, 4>(values + first, rows, stride, from, to + first); break;
        case 2: push_block<Vector, 2>(values + first, rows, stride, from, to + first); break;
        default: break;
    }
}

PYFAST_MULTIVERSION void push_floats(const float* values, std::size_t rows, std::size_t stride, const float* from,
                                     float* to) {
    push_dense<Octet>(values, rows, stride, from, to);
}

double scale(std::optional<double> damping, double total) {
    return !damping ? 1.0 : total > 0.0 ? *damping / total : 0.0;
}

// Converts rows of weights from float into rows of the matrix, in double and in float.
PYFAST_MULTIVERSION void scale_rows(float* rough, std::size_t n, std::optional<double> damping, double* totals,
                                    double* values) {
    using Half [[gnu::vector_size(lanes_of_doubles * sizeof(float))]] = float;
    using Four [[gnu::vector_size(4 * sizeof(double))]] = double;
    const std::size_t stride = rounded_up(n, lanes_of_doubles);
    for (std::size_t i = 0; i < n; ++i, rough += rounded_up(n, lanes_of_floats), values += stride) {
        Doubles sums{};
        for (std::size_t j = 0; j < stride; j += lanes_of_doubles) {
            Half row;
            std::memcpy(&row, rough + j, sizeof row);
            sums += __builtin_convertvector(row, Doubles);
        }
        Four halves[2];
        std::memcpy(halves, &sums, sizeof halves);
        const Four four = halves[0] + halves[1];
        totals[i] = (four[0] + four[2]) + (four[1] + four[3]);
        const double factor = scale(damping, totals[i]);
        for (std::size_t j = 0; j < stride; j += lanes_of_doubles) {
            Half row;
            std::memcpy(&row, rough + j, sizeof row);
            const Doubles scaled = __builtin_convertvector(row, Doubles) * factor;
            row = __builtin_convertvector(scaled, Half);
            std::memcpy(values + j, &scaled, sizeof scaled);
            std::memcpy(rough + j, &row, sizeof row);
        }
    }
}

}  // namespace

PYFAST_MULTIVERSION void push_rows(const double* values, std::size_t rows, std::size_t stride, const double* from,
                                   double* to) {
    push_dense<Quad>(values, rows, stride, from, to);
}

void PoolMatrix::read(const PoolEdges& pool, std::optional<double> damping) {
    pool_ = pool;
    const std::size_t n = pool.nodes();
    totals_.resize(n);
    // A stored edge takes the time of eight entries of a dense row. A dense matrix should fit into a cache.
    constexpr std::size_t largest = 1024;
    dense_ = n <= largest && pool.edges() * 8 >= n * n;
    if (dense_) {
        const std::size_t stride = rounded_up(n, lanes_of_floats);
        rough_.assign(n * stride, 0.0f);
        values_.resize(n * rounded_up(n, lanes_of_doubles));
        const std::int32_t* const indices = pool.indices.data();
        const float* const weights = pool.weights.data();
        for (std::size_t i = 0; i < n; ++i) {
            float* const row = rough_.data() + i * stride;
            const std::size_t end = pool.begin(i + 1);
            for (std::size_t e = pool.begin(i); e < end; ++e) {
                row[indices[e]] = weights[e];
            }
        }
        scale_rows(rough_.data(), n, damping, totals_.data(), values_.data());
        return;
    }
    values_.resize(pool.edges());
    for (std::size_t i = 0; i < n; ++i) {
        const auto weights = pool.row(i).weights;
        totals_[i] = std::accumulate(weights.begin(), weights.end(), 0.0);
        const double factor = scale(damping, totals_[i]);
        std::transform(weights.begin(), weights.end(),
                       values_.begin() + static_cast<std::ptrdiff_t>(pool.begin(i)),
                       [&](float weight) { return static_cast<double>(weight) * factor; });
    }
}

void PoolMatrix::push(const double* from, double* to) const {
    const std::size_t n = pool_.nodes();
    if (dense_) {
        push_rows(values_.data(), n, rounded_up(n, lanes_of_doubles), from, to);
        return;
    }
    std::fill_n(to, padded(), 0.0);
    for (std::size_t i = 0; i < n; ++i) {
        const double x = from[i];
        for (std::size_t e = pool_.begin(i); e < pool_.begin(i + 1); ++e) {
            to[pool_.indices[e]] += x * values_[e];
        }
    }
}

void PoolMatrix::push(const float* from, float* to) const {
    push_floats(rough_.data(), pool_.nodes(), padded(), from, to);
}

void PoolMatrix::trim() {
    pyfast::trim(values_);
    pyfast::trim(rough_);
}

}  // namespace pyfast
