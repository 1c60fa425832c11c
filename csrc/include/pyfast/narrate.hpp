// narrate: pools as the text that the LLM reads.
#pragma once

#include <cstdint>

#include "pyfast/api.hpp"
#include "pyfast/pools.hpp"
#include "pyfast/texts.hpp"

namespace pyfast {

// One text per pool: a line "[1] ..." for its first document, "[2] ..." for the next, as many whole lines as
// `characters` (code points, line ends counted) hold; a first line that is too long alone is cut. `lines` are the
// documents' lines in UTF-8; where they are not, a byte that opens no character counts for none. O(bytes written).
// Thread-safe; one thread's work. Throws Error on malformed pools, on lines that do not lie inside their text, and
// on a negative `characters`.
PYFAST_API Texts narrate(const Ragged<std::uint8_t>& lines, const Pools& pools, std::int64_t characters);

}  // namespace pyfast
