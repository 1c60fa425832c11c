// The levels of segments.
#pragma once

#include <cstdint>

namespace pyfast {

// `pyfast.corpus.Level` has the same numbers. The levels nest in this way: document > section? > paragraph >
// sentence; table > table_row > table_cell; document > subgraph > triplet.
enum class Level : std::uint8_t {
    document,
    section,
    paragraph,
    sentence,
    table,
    table_row,
    table_cell,
    subgraph,
    triplet,
};
inline constexpr int levels = 9;

}  // namespace pyfast
