// cite: segments of the corpus as the evidence of an answer, in JSON.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "pyfast/api.hpp"
#include "pyfast/integers.hpp"
#include "pyfast/level.hpp"
#include "pyfast/pools.hpp"
#include "pyfast/texts.hpp"

namespace pyfast {

// The columns of a corpus. Segments are in depth-first order: a segment's descendants follow it.
struct Segments {
    // One entry per segment.
    std::span<const std::uint8_t> level;   // a Level
    std::span<const std::int32_t> source;  // the number of its document
    Integers start;                        // its start in its document
    Integers end;
    Integers byte_start;  // where its content starts in `content`
    Integers byte_end;
    // One entry for each segment that is a triple, in order: its number in its document, and where its relation
    // and its tail start in `content`.
    std::span<const std::int64_t> triplets;
    std::span<const std::int64_t> ordinal;
    std::span<const std::int64_t> relation_start;
    std::span<const std::int64_t> tail_start;
    // One entry per document; texts are UTF-8.
    std::span<const std::uint64_t> hashes;  // hashes of the uris
    Ragged<std::uint8_t> uris;
    std::span<const std::uint8_t> content;
};

// One text for each list of segments: a JSON array of objects
//   {"segment": `segment_id` as 16 hexadecimal digits, "uri", "offsets": [start, end], "snippet", "score"}.
//
// An object can have more members at its end: object v gets members[member_of[v]], the text of some members in
// JSON, and nothing if member_of[v] is -1. Without `member_of`, no object gets more.
//
// The score has up to six decimals; a score that is not finite becomes null. The snippet is the segment's content.
// Texts and cells are copied. The cells of a row are joined with tabs, and rows with line ends. A tab inside a
// joined cell becomes a space, and in a whole table also a line end. A triple is "head relation tail", and several
// triples are joined with "; ". Time: O(bytes written), and a binary search for each triple. Thread-safe; it runs
// on one thread. Throws Error if columns or lists do not fit, if a segment does not exist, and if content is out
// of bounds.
PYFAST_API Texts cite(const Segments& segments, const Ragged<std::int64_t>& cited, std::span<const double> scores,
                      std::span<const std::string> members = {}, std::span<const std::int32_t> member_of = {});

// One text for each list of segments: a JSON array of objects {"segment", "uri", ...}. After these two, an object
// has a number for each of `names`. The numbers of name n are scores[n * listed.values.size() ..], and they have
// up to four decimals. Reads the columns that `segment_ids` reads, and `uris`. Thread-safe; it runs on one thread.
// Throws Error as `cite` does.
PYFAST_API Texts list_segments(const Segments& segments, const Ragged<std::int64_t>& listed,
                               std::span<const std::string> names, std::span<const float> scores);

// The ids of these segments. Reads only level, source, start, end, triplets, ordinal and hashes; the other columns
// may be empty. Thread-safe; it runs on one thread. Throws Error as `cite` does.
PYFAST_API std::vector<std::uint64_t> segment_ids(const Segments& segments, std::span<const std::int64_t> which);

}  // namespace pyfast
