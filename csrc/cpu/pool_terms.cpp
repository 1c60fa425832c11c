#include "pool_terms.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reused.hpp"

namespace pyfast {

void PoolTerms::gather(const Forward& x, std::span<const std::int32_t> documents,
                       std::span<const std::int32_t> masked, Idf idf) {
    check_documents(x, documents);
    rows.clear();
    memory_.clear();
    begin.assign(1, 0);
    for (const std::int32_t document : documents) {
        rows.push_back(checked_row(x, document, memory_));
        begin.push_back(begin.back() + rows.back().terms.size());
    }
    check_masked(x, masked);
    const std::size_t most = begin.back() + masked.size() + 1;
    number.resize(begin.back());
    df.assign(most, 0);
    table_.make_room(x.terms);
    constexpr std::int32_t largest = std::numeric_limits<std::int32_t>::max();
    if (most > static_cast<std::size_t>(largest - base_)) {  // after about a million pools
        table_.clear();
        base_ = 0;
    }
    std::int32_t* const table = table_.data();
    const std::uint32_t keep = table_.keep();
    const std::int32_t base = base_;
    std::int32_t last = base;
    // The number of a term, new or known. No branch: the processor cannot predict which one it is.
    const auto number_of = [&](std::int32_t term) {
        std::int32_t& place = table[static_cast<std::uint32_t>(term) & keep];
        const std::int32_t known = place;
        const std::int32_t is_new = known <= base ? 1 : 0;
        last += is_new;
        const std::int32_t mine = known + ((last - known) & -is_new);
        place = mine;
        return mine - base;
    };
    for (const std::int32_t term : masked) {
        number_of(term);
    }
    const auto first_free = static_cast<std::size_t>(last - base) + 1;
    std::int32_t* out = number.data();
    for (const Row& row : rows) {
        for (const std::int32_t term : row.terms) {
            const std::int32_t mine = number_of(term);
            ++df[static_cast<std::size_t>(mine)];
            *out++ = mine;
        }
    }
    if (idf == Idf::pool) {
        weigh();
    }
    std::fill_n(df.begin(), first_free, 0);
    count_ = static_cast<std::size_t>(last - base) + 1;
    base_ = last;
}

void PoolTerms::weigh() {
    const auto n = static_cast<double>(rows.size());
    idf_.resize(df.size());
    std::transform(df.begin(), df.end(), idf_.begin(), [n](std::int32_t held) {
        return std::log((1.0 + n) / (1.0 + static_cast<double>(held))) + 1.0;
    });
    weighed_.resize(number.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const std::span<float> out{weighed_.data() + begin[i], begin[i + 1] - begin[i]};
        const auto weight = [&](std::size_t e) {
            return static_cast<double>(rows[i].weights[e]) * idf_[static_cast<std::size_t>(number[begin[i] + e])];
        };
        double squares = 0.0;
        for (std::size_t e = 0; e < out.size(); ++e) {
            squares += weight(e) * weight(e);
        }
        const double norm = squares > 0.0 ? std::sqrt(squares) : 1.0;
        for (std::size_t e = 0; e < out.size(); ++e) {
            out[e] = static_cast<float>(weight(e) / norm);
        }
        rows[i].weights = out;
    }
}

void PoolTerms::trim() {
    memory_.trim();
    pyfast::trim(weighed_);
    pyfast::trim(number);
    pyfast::trim(df);
    table_.trim();
}

}  // namespace pyfast
