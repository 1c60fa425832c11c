#include "pyfast/bridge_select.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include "checked_offsets.hpp"
#include "pyfast/error.hpp"

namespace pyfast {

namespace {

struct Range {
    std::size_t first, last;
};

// The bounds of list `list`, within `size` entries.
Range checked_range(const Integers& offsets, std::size_t list, std::size_t size, const char* name) {
    const std::int64_t first = offsets[list];
    const std::int64_t last = offsets[list + 1];
    if (first < 0 || last < first || last > static_cast<std::int64_t>(size)) {
        throw Error(std::string(name) + ": list " + std::to_string(list) + " starts at " + std::to_string(first) +
                    " and ends at " + std::to_string(last) + "; number of entries: " + std::to_string(size));
    }
    return {static_cast<std::size_t>(first), static_cast<std::size_t>(last)};
}

// The paper's phi: whether a cell value of the table row occurs in the passage.
bool linked(const Row& passage, const Cells& cells, std::int32_t table_row) {
    const std::size_t values = std::max<std::size_t>(cells.term_offsets.size(), 1) - 1;
    const Range of_row =
        checked_range(cells.offsets, static_cast<std::size_t>(table_row), values, "cells.value_offsets");
    for (std::size_t v = of_row.first; v < of_row.last; ++v) {
        const Range of_value = checked_range(cells.term_offsets, v, cells.terms.size(), "cells.term_offsets");
        const auto value = cells.terms.subspan(of_value.first, of_value.last - of_value.first);
        const auto in_passage = [&](std::int32_t term) {
            return std::binary_search(passage.terms.begin(), passage.terms.end(), term);
        };
        if (!value.empty() && std::all_of(value.begin(), value.end(), in_passage)) {
            return true;
        }
    }
    return false;
}

}  // namespace

void bridge_select(const Forward& x, const Pools& given, std::span<const float> semantic,
                   std::span<const std::uint8_t> is_table, const Cells& cells, float beta,
                   std::span<float> boosted) {
    const auto offsets = checked_offsets(given.offsets, given.values.size(), "pool_offsets");
    const Pools pools{offsets, given.values};
    if (static_cast<std::int64_t>(cells.offsets.size()) != x.documents() + 1) {
        throw Error("cells.value_offsets: must hold one more number than there are documents in X");
    }
    const std::size_t n = pools.values.size();
    if (semantic.size() != n || is_table.size() != n || boosted.size() != n) {
        throw Error("semantic, is_table: must hold one value per node of the pools (" + std::to_string(n) + ")");
    }
    check_documents(x, pools.values);
    check_finite(semantic, "semantic");
    check_finite({&beta, 1}, "beta");
    std::copy(semantic.begin(), semantic.end(), boosted.begin());
    RowMemory memory;
    for (std::size_t p = 0; p < pools.size(); ++p) {
        std::optional<std::size_t> top_passage;
        std::optional<std::size_t> top_table;
        for (auto v = static_cast<std::size_t>(pools.offsets[p]);
             v < static_cast<std::size_t>(pools.offsets[p + 1]); ++v) {
            auto& top = is_table[v] != 0 ? top_table : top_passage;
            if (!top || semantic[v] > semantic[*top]) {
                top = v;
            }
        }
        if (top_table) {
            boosted[*top_table] += beta;
        }
        if (top_passage) {
            memory.clear();
            const Row passage = checked_row(x, pools.values[*top_passage], memory);
            if (!top_table || !linked(passage, cells, pools.values[*top_table])) {
                boosted[*top_passage] += beta;
            }
        }
    }
}

}  // namespace pyfast
