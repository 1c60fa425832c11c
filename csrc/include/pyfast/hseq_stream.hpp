// hseq_stream: windows on the hierarchical sequence of a corpus's segments, for the cursors of many questions.
//
// A cursor's stream is its prior (segments that a search found for the question, in their order), then the order
// rho: the segments of the levels named, best level first, within a level in the order of the sequence; each
// segment once. Its window of W is the first W of them, from its place on, that are neither selected nor deleted.
//
// Cursors are values that go in and come out: nothing is registered or forgotten, so that a call may hold the
// cursors of whichever questions wait, on whichever thread, and a question that is run again has the same windows.
// What a cursor has selected is bounded by its question's budget and is passed in full.
//
// All of it is 64 bits wide, columns of the hierarchy 32 or 64. Nothing but what says so below reads a whole
// column, and what a call reads of one is checked where it is read: columns may be mapped files, larger than
// memory. All functions are thread-safe and deterministic: a cursor is one thread's work. They throw Error on
// malformed input.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pyfast/api.hpp"
#include "pyfast/buffer.hpp"
#include "pyfast/integers.hpp"
#include "pyfast/level.hpp"
#include "pyfast/pools.hpp"

namespace pyfast {

// One entry per segment, in depth-first order: a segment's children, and theirs, follow it.
struct Hierarchy {
    std::span<const std::uint8_t> level;  // a Level
    Integers parent;                      // -1: none
    Integers subtree_end;                 // one past the last segment in it
};

// Lists of segments, as an op gives them back.
struct SegmentLists {
    std::vector<std::int64_t> offsets{0};
    Buffer<std::int64_t> segments;
};

// The column `subtree_end`. Throws Error unless `parent` is that of segments in depth-first order. O(segments).
PYFAST_API Buffer<std::int64_t> subtree_ends(const Integers& parent);

// Throws Error unless `subtree_end` is the column that goes with `parent`. O(segments), in no memory to speak of.
PYFAST_API void check_subtree_ends(const Integers& parent, const Integers& subtree_end);

// The order rho: the segments of level priority[k] are segments[starts[k] .. starts[k + 1]), ascending. Those of
// levels that are not named are in no window, unless a prior has them.
struct Order {
    std::span<const std::int64_t> segments;
    std::span<const std::int64_t> starts;
};
struct OwnedOrder {
    Buffer<std::int64_t> segments;
    std::vector<std::int64_t> starts;
};

// A stable counting sort: O(segments), once per corpus.
PYFAST_API OwnedOrder level_order(std::span<const std::uint8_t> level, std::span<const std::uint8_t> priority);

// What is deleted: `mask` by segment (1: deleted), `live` by place in rho, 64 to a word, with words above that
// tell which words hold anything. So a window steps over any number of deleted segments at once. Both empty:
// nothing is.
struct Tombstones {
    std::span<const std::uint8_t> mask;
    std::span<const std::uint64_t> live;
};
struct OwnedTombstones {
    Buffer<std::uint8_t> mask;
    Buffer<std::uint64_t> live;
};

// The tombstones of these deleted segments. O(segments).
PYFAST_API OwnedTombstones mark_deleted(const Order& order, std::span<const std::uint8_t> mask);

// `before` with these segments and all in them deleted too. Copies the tombstones, and costs what is deleted.
PYFAST_API OwnedTombstones delete_segments(const Hierarchy& hierarchy, const Order& order,
                                           const Tombstones& before, std::span<const std::int64_t> segments);

struct Stream {
    std::int64_t size = 0;  // segments of the corpus
    Order order;
    Tombstones tombstones;
};

// One entry per cursor.
struct Cursors {
    std::span<const std::int64_t> place;  // where its windows begin: in its prior, and from there on in rho
    Ragged<std::int64_t> selected;
    Ragged<std::int64_t> prior;
};

// Each cursor's first `width` segments that are neither selected nor deleted; fewer at the end. O(width + its
// prior + its selected) per cursor.
PYFAST_API SegmentLists window(const Stream& stream, const Cursors& cursors, std::int64_t width, int threads);

struct Refreshed {
    Buffer<std::int64_t> place;
    SegmentLists selected;
};

// The cursors after a step: `chosen`, of the window or not, is selected too. With `past` = 0 what was not selected
// stays in the window, which is refilled behind it; else the cursor leaves the first `past` segments of its
// window, as it was, behind. O(past + its prior + its selected + chosen) per cursor.
PYFAST_API Refreshed refresh(const Stream& stream, const Cursors& cursors, const Ragged<std::int64_t>& chosen,
                             std::int64_t past, int threads);

// Of a segment:
//   children  those whose parent it is
//   parent    its parent, if it has one
//   row       of a table cell: the other cells of its row
//   column    of a table cell, the k-th of its row: the k-th cell of each other row of the table that has so many
//   relation  of a triplet: the other triplets of its subgraph. (In a corpus of pyfast these are all of one head.)
// All of them ascending, none for segments of other levels, and no deleted ones.
enum class Neighbors : std::uint8_t { children, parent, row, column, relation };

// The neighbours of each list of segments together: in the order of the list, each once, none of those in the list
// of `excluded` (no lists at all: none are), `limit` at most. O(neighbours) per segment; `column`: O(rows).
PYFAST_API SegmentLists neighbors(const Hierarchy& hierarchy, std::span<const std::uint8_t> mask,
                                  const Ragged<std::int64_t>& segments, const Ragged<std::int64_t>& excluded,
                                  Neighbors kind, std::int64_t limit, int threads);

}  // namespace pyfast
