// narrate: pools as the text that the LLM reads.
#pragma once

#include <cstdint>

#include "pyfast/pools.hpp"
#include "pyfast/texts.hpp"

namespace pyfast {

// One text per pool: a line "[1] ..." for its first document, "[2] ..." for the next, as many whole lines as
// `characters` (code points, line ends counted) hold; a first line that is too long alone is cut. `lines` are the
// documents' lines in UTF-8. Thread-safe. Throws Error on malformed pools, and on lines that do not lie inside
// their text.
Texts narrate(const Ragged<std::uint8_t>& lines, const Pools& pools, std::int64_t characters);

}  // namespace pyfast
