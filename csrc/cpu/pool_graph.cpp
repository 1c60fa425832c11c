#include "pool_graph.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "multiversion.hpp"
#include "pyfast/error.hpp"
#include "reused.hpp"

namespace pyfast {

namespace {

// The portable vectors of GCC and Clang: one, two or four registers, depending on the processor.
constexpr std::size_t lanes = 16;
using Vector [[gnu::vector_size(lanes * sizeof(float))]] = float;

constexpr std::size_t small_pool = 512;  // its full matrix fits into a core's cache
// With `sum`, a stored weight of 0 still counts as shared. So -1 stands for an absent edge.
constexpr float absent = -1.0f;

struct Sum {
    float operator()(float x, float y) const { return x + y; }
    [[gnu::always_inline]] void add(Vector& sum, float x, const Vector& y) const {
        sum += y >= 0.0f ? x + y : 0.0f;
    }
};
struct Dot {
    float operator()(float x, float y) const { return x * y; }
    [[gnu::always_inline]] void add(Vector& sum, float x, const Vector& y) const {
        sum += y >= 0.0f ? x * y : 0.0f;
    }
};
struct Min {
    float operator()(float x, float y) const { return y < x ? y : x; }
    [[gnu::always_inline]] void add(Vector& sum, float x, const Vector& y) const {
        sum += y >= 0.0f ? (y < x ? y : Vector{} + x) : 0.0f;
    }
};

// row[0 .. Width vectors) += the columns of the entries. The sums stay in registers.
template <std::size_t Width, class Weight>
[[gnu::always_inline]] inline void add_block(float* row, const float* values,
                                             std::span<const PoolGraph::Frequent> entries, Weight weight) {
    Vector sums[Width];
    std::memcpy(sums, row, sizeof sums);
    for (const auto& entry : entries) {
        const float* column = values + entry.place;
        for (std::size_t v = 0; v < Width; ++v) {
            Vector y;
            std::memcpy(&y, column + v * lanes, sizeof y);
            weight.add(sums[v], entry.weight, y);
        }
    }
    std::memcpy(row, sums, sizeof sums);
}

template <class Weight>
[[gnu::always_inline]] inline void add_columns(float* row, std::size_t stride, const float* values,
                                               std::span<const PoolGraph::Frequent> entries, Weight weight) {
    std::size_t first = 0;
    for (; first + 4 * lanes <= stride; first += 4 * lanes) {
        add_block<4>(row + first, values + first, entries, weight);
    }
    for (; first < stride; first += lanes) {
        add_block<1>(row + first, values + first, entries, weight);
    }
}

PYFAST_MULTIVERSION void add_columns_sum(float* row, std::size_t stride, const float* values,
                                         std::span<const PoolGraph::Frequent> entries) {
    add_columns(row, stride, values, entries, Sum{});
}
PYFAST_MULTIVERSION void add_columns_dot(float* row, std::size_t stride, const float* values,
                                         std::span<const PoolGraph::Frequent> entries) {
    add_columns(row, stride, values, entries, Dot{});
}
PYFAST_MULTIVERSION void add_columns_min(float* row, std::size_t stride, const float* values,
                                         std::span<const PoolGraph::Frequent> entries) {
    add_columns(row, stride, values, entries, Min{});
}

}  // namespace

// Decides how each term is stored: not at all (masked, or in at most one document), as a list, or as a column.
void PoolGraph::lay_out() {
    const std::size_t n = terms.documents();
    const std::size_t m = terms.terms();
    stride_ = (n + lanes - 1) / lanes * lanes;
    small_ = !by_rows(n) && function_ == nullptr;
    // The longest list that pays off: a list takes a scalar addition for each document and row, and a column takes
    // a vector addition for each 16 documents.
    const auto limit = function_ != nullptr ? n : std::max<std::size_t>(n / 8, 3);
    const std::size_t column = limit + 1;
    const auto kind_of = [&](std::size_t t) { return std::min(static_cast<std::size_t>(terms.df[t]), column); };

    shared_.resize(m);
    std::size_t shared = 0;
    for (std::size_t t = 0; t < m; ++t) {
        shared_[shared] = t;
        shared += terms.df[t] >= 2 ? 1 : 0;
    }
    shared_.resize(shared);
    lists_.assign(column + 1, 0);
    for (const std::size_t t : shared_) {
        ++lists_[kind_of(t)];
    }
    // Lists of one length are contiguous, the shortest first, then the columns. Place 0 takes writes that are
    // never read.
    kinds_.assign(column + 1, Kind{{0, 0, 0}, 0});
    std::size_t place = 1;
    for (std::size_t d = 2; d <= column; ++d) {
        const std::size_t size = d == column ? stride_ : d;
        kinds_[d] = {{static_cast<std::int32_t>(place), d == column ? 0 : 1, d == column ? -1 : 0},
                     static_cast<std::int32_t>(size)};
        place += size * lists_[d];
    }
    if (place > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
        throw Error("doc_ids: a pool of " + std::to_string(n) + " documents holds too many terms for one graph");
    }
    const std::size_t first_column = place - stride_ * lists_[column];
    value_.resize(place);
    document_.resize(first_column + stride_);
    std::fill(value_.begin() + static_cast<std::ptrdiff_t>(first_column), value_.end(), absent);
    layout_.assign(m, Layout{0, 0, 0});
    for (const std::size_t t : shared_) {
        Kind& kind = kinds_[kind_of(t)];
        layout_[t] = kind.next;
        kind.next.place += kind.size;
    }
    if (!small_) {
        list_begin_.resize(m);
        std::transform(layout_.begin(), layout_.end(), list_begin_.begin(),
                       [](const Layout& l) { return l.place; });
    }
}

void PoolGraph::store_entries() {
    const std::size_t n = terms.documents();
    frequent_.resize(terms.begin.back() + 1);
    frequent_begin_.assign(1, 0);
    std::size_t frequent = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const auto document = static_cast<std::int32_t>(i);
        const auto numbers = terms.numbers(i);
        const float* weights = terms.rows[i].weights.data();
        for (std::size_t e = 0; e < numbers.size(); ++e) {
            Layout& layout = layout_[static_cast<std::size_t>(numbers[e])];
            value_[static_cast<std::size_t>(layout.place + (document & layout.keep))] = weights[e];
            document_[static_cast<std::size_t>(layout.place & ~layout.keep)] = document;
            frequent_[frequent] = {layout.place, weights[e]};
            frequent += layout.keep != 0 ? 1 : 0;
            layout.place += layout.step;
        }
        frequent_begin_.push_back(frequent);
    }
}

template <class Weight>
void PoolGraph::add_rare_pairs(Weight weight) {
    const std::int32_t* document = document_.data() + 1;
    const float* value = value_.data() + 1;
    for (std::size_t d = 2; d + 1 < lists_.size(); ++d) {
        for (std::size_t list = 0; list < lists_[d]; ++list, document += d, value += d) {
            for (std::size_t a = 0; a < d; ++a) {
                float* const row = matrix_.data() + static_cast<std::size_t>(document[a]) * stride_;
                for (std::size_t b = a + 1; b < d; ++b) {
                    const float w = weight(value[a], value[b]);
                    row[document[b]] += w;
                    matrix_[static_cast<std::size_t>(document[b]) * stride_ +
                            static_cast<std::size_t>(document[a])] += w;
                }
            }
        }
    }
}

template <class Weight>
void PoolGraph::add_rare_row(std::size_t i, float* row, Weight weight) const {
    const auto numbers = terms.numbers(i);
    for (std::size_t e = 0; e < numbers.size(); ++e) {
        const auto t = static_cast<std::size_t>(numbers[e]);
        if (layout_[t].step == 0) {
            continue;  // a column, or not stored
        }
        const float x = terms.rows[i].weights[e];
        for (auto q = static_cast<std::size_t>(list_begin_[t]); q < static_cast<std::size_t>(layout_[t].place);
             ++q) {
            row[document_[q]] += weight(x, value_[q]);
        }
    }
}

void PoolGraph::prepare(EdgeWeight weight, TermWeight function) {
    weight_ = weight;
    function_ = function;
    lay_out();
    store_entries();
    matrix_.assign(small_ ? terms.documents() * stride_ : stride_, 0.0f);
    if (small_) {
        switch (weight_) {
            case EdgeWeight::sum: add_rare_pairs(Sum{}); break;
            case EdgeWeight::dot: add_rare_pairs(Dot{}); break;
            case EdgeWeight::min: add_rare_pairs(Min{}); break;
        }
    }
}

std::span<float> PoolGraph::row(std::size_t i) {
    if (!small_) {
        return row(i, matrix_);
    }
    float* const row = matrix_.data() + i * stride_;
    add_columns(i, row);
    return {row, terms.documents()};
}

std::span<float> PoolGraph::row(std::size_t i, std::vector<float>& memory) const {
    memory.assign(stride_, 0.0f);
    const std::span<float> row{memory.data(), terms.documents()};
    if (function_ != nullptr) {
        add_rare_row(i, memory.data(), function_);
        row[i] = 0.0f;
        if (!std::all_of(row.begin(), row.end(), [](float w) { return std::isfinite(w); })) {
            throw Error("weight: the function's values add up to NaN or infinity");
        }
        return row;
    }
    switch (weight_) {
        case EdgeWeight::sum: add_rare_row(i, memory.data(), Sum{}); break;
        case EdgeWeight::dot: add_rare_row(i, memory.data(), Dot{}); break;
        case EdgeWeight::min: add_rare_row(i, memory.data(), Min{}); break;
    }
    add_columns(i, memory.data());
    return row;
}

bool PoolGraph::by_rows(std::size_t n) { return n > small_pool; }

void PoolGraph::add_columns(std::size_t i, float* row) const {
    const std::span<const Frequent> entries{frequent_.data() + frequent_begin_[i],
                                            frequent_begin_[i + 1] - frequent_begin_[i]};
    switch (weight_) {
        case EdgeWeight::sum: add_columns_sum(row, stride_, value_.data(), entries); break;
        case EdgeWeight::dot: add_columns_dot(row, stride_, value_.data(), entries); break;
        case EdgeWeight::min: add_columns_min(row, stride_, value_.data(), entries); break;
    }
}

void PoolGraph::trim() {
    terms.trim();
    pyfast::trim(layout_);
    pyfast::trim(value_);
    pyfast::trim(document_);
    pyfast::trim(frequent_);
    pyfast::trim(matrix_);
}

}  // namespace pyfast
