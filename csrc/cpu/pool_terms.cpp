#include "pool_terms.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "pyfast/error.hpp"
#include "reused.hpp"

namespace pyfast {

void PoolTerms::gather(const Forward& x, std::span<const std::int32_t> documents,
                       std::span<const std::int32_t> masked) {
    rows.clear();
    begin.assign(1, 0);
    for (const std::int32_t document : documents) {
        rows.push_back(checked_row(x, document));
        begin.push_back(begin.back() + rows.back().terms.size());
    }
    for (const std::int32_t term : masked) {
        if (term < 0 || term >= x.terms) {
            throw Error("masked term " + std::to_string(term) + " is outside the vocabulary of " +
                        std::to_string(x.terms) + " terms");
        }
    }
    const std::size_t most = begin.back() + masked.size() + 1;
    number.resize(begin.back());
    df.assign(most, 0);
    if (table_.size() < static_cast<std::size_t>(x.terms)) {
        table_.resize(static_cast<std::size_t>(x.terms), 0);
    }
    constexpr std::int32_t largest = std::numeric_limits<std::int32_t>::max();
    if (most > static_cast<std::size_t>(largest - base_)) {  // after a million pools or so
        std::fill(table_.begin(), table_.end(), 0);
        base_ = 0;
    }
    std::int32_t* const table = table_.data();
    const std::int32_t base = base_;
    std::int32_t last = base;
    // The number of a term, new or known, without a branch: which of the two is a coin toss for the processor.
    const auto number_of = [&](std::int32_t term) {
        const std::int32_t known = table[term];
        const std::int32_t is_new = known <= base ? 1 : 0;
        last += is_new;
        const std::int32_t mine = known + ((last - known) & -is_new);
        table[term] = mine;
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
    std::fill_n(df.begin(), first_free, 0);
    count_ = static_cast<std::size_t>(last - base) + 1;
    base_ = last;
}

void PoolTerms::trim() {
    pyfast::trim(number);
    pyfast::trim(df);
}

}  // namespace pyfast
