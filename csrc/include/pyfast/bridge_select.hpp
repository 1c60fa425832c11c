// bridge_select: algorithm 1 of N2N-GQA, the bridge-aware hybrid selector.
#pragma once

#include <cstdint>
#include <span>

#include "pyfast/api.hpp"
#include "pyfast/integers.hpp"
#include "pyfast/pools.hpp"

namespace pyfast {

// The cell values of each document, as lists of term ids. Passages have none. Document d has the values offsets[d]
// .. offsets[d + 1]. Value v has the terms term_offsets[v] .. term_offsets[v + 1].
struct Cells {
    Integers offsets;
    Integers term_offsets;
    std::span<const std::int32_t> terms;
};

// `boosted` is `semantic`, plus beta for the top table row. If the top row and the top passage are not linked, the
// top passage gets beta too. They are linked if all terms of one cell value of the row occur in the passage. In a
// pool of one kind only, the top document gets beta. If scores are equal, the first document is the top.
//
// `semantic`, `is_table` (0: a passage) and `boosted` have one number for each node. Time: O(nodes), and a binary
// search in the top passage for each term of the top row's cells. Thread-safe; it runs on one thread. Throws Error
// for malformed pools, for scores or a beta that are not finite, and for a malformed top passage or list of cells.
// `boosted` may have been written by then.
PYFAST_API void bridge_select(const Forward& x, const Pools& pools, std::span<const float> semantic,
                              std::span<const std::uint8_t> is_table, const Cells& cells, float beta,
                              std::span<float> boosted);

}  // namespace pyfast
