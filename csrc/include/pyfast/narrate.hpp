// narrate: pools as text for the LLM.
#pragma once

#include <cstdint>

#include "pyfast/api.hpp"
#include "pyfast/pools.hpp"
#include "pyfast/texts.hpp"

namespace pyfast {

// One text for each pool: a line "[1] ..." for its first document, "[2] ..." for the next, and so on. The text has
// as many whole lines as fit into `characters` (code points, with line ends). If the first line alone is too long,
// it is cut. `lines` has the line of each document in UTF-8; an invalid byte that starts no character is not
// counted. Time: O(bytes written). Thread-safe; it runs on one thread. Throws Error for malformed pools, for lines
// outside their text, and for negative `characters`.
PYFAST_API Texts narrate(const Ragged<std::uint8_t>& lines, const Pools& pools, std::int64_t characters);

}  // namespace pyfast
