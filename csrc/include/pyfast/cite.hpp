// cite: segments of the corpus as the evidence that is written beside an answer, in JSON.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pyfast/api.hpp"
#include "pyfast/integers.hpp"
#include "pyfast/level.hpp"
#include "pyfast/pools.hpp"
#include "pyfast/texts.hpp"

namespace pyfast {

// The columns of a corpus. Segments are in depth-first order: what is in a segment follows it.
struct Segments {
    // One entry per segment.
    std::span<const std::uint8_t> level;   // a Level
    std::span<const std::int32_t> source;  // its document
    Integers start;                        // where it stands in its document
    Integers end;
    Integers byte_start;  // its content, in `content`
    Integers byte_end;
    // One entry per segment that is a triplet, in order: its place in its document, and where in `content` its
    // relation and its tail start.
    std::span<const std::int64_t> triplets;
    std::span<const std::int64_t> ordinal;
    std::span<const std::int64_t> relation_start;
    std::span<const std::int64_t> tail_start;
    // One entry per document; texts are UTF-8.
    std::span<const std::uint64_t> hashes;  // of the uris
    Ragged<std::uint8_t> uris;
    std::span<const std::uint8_t> content;
};

// One text per list of segments: a JSON array of objects
// {"segment": `segment_id` in 16 hex digits, "uri", "offsets": [start, end], "snippet", "score": to six digits}.
//
// The snippet is the segment's content: text and cells exactly; cells of a row joined with tabs, rows with line
// ends; a triple as "head relation tail", several joined with "; ". Scores that are not finite become null.
// O(bytes written), and a binary search among the triplets for each that is written. Thread-safe; one thread's
// work. Throws Error on columns or lists that do not fit, on a segment that there is not, and on content out of
// bounds.
PYFAST_API Texts cite(const Segments& segments, const Ragged<std::int64_t>& cited, std::span<const double> scores);

// The id of each of these segments. Reads level, source, start, end, triplets, ordinal and hashes only; the other
// columns may be empty. Thread-safe; one thread's work. Throws Error as `cite`.
PYFAST_API std::vector<std::uint64_t> segment_ids(const Segments& segments, std::span<const std::int64_t> which);

}  // namespace pyfast
