// bridge_select: N2N-GQA's algorithm 1, the bridge-aware hybrid selector.
#pragma once

#include <cstdint>
#include <span>

#include "pyfast/api.hpp"
#include "pyfast/integers.hpp"
#include "pyfast/pools.hpp"

namespace pyfast {

// The cell values of every document as lists of term ids; a passage has none.
// Document d has the values offsets[d] .. offsets[d + 1], and value v the terms term_offsets[v] .. term_offsets[v
// + 1].
struct Cells {
    Integers offsets;
    Integers term_offsets;
    std::span<const std::int32_t> terms;
};

// boosted = semantic, plus beta for the top table row, and for the top passage too where the two are not
// linked: where no cell value of the row has all its terms in the passage. A pool of one kind only has no
// link, and its top document is boosted. Ties for the top: the first.
//
// `semantic`, `is_table` (0: a passage) and `boosted` hold a number per node. O(nodes), and a binary search in the
// top passage for each term of the top row's cells. Thread-safe; one thread's work. Throws Error on malformed
// pools, on scores or a beta that are not finite, and on a malformed top passage or list of cells; `boosted` may
// have been written to by then.
PYFAST_API void bridge_select(const Forward& x, const Pools& pools, std::span<const float> semantic,
                              std::span<const std::uint8_t> is_table, const Cells& cells, float beta,
                              std::span<float> boosted);

}  // namespace pyfast
