// hseq_stream: windows over the hierarchical sequence of a corpus's segments, for the cursors of many questions.
//
// The stream of a cursor begins with its prior: segments that a search found for the question, in their order.
// Then comes the order rho: the segments of the given levels, best level first, within a level in the order of the
// sequence. Each segment occurs once. The window of width W has the first W segments from the cursor's place on
// that are neither selected nor deleted.
//
// Cursors are passed in and returned; the library keeps no state. So one call, on any thread, can take the cursors
// of any waiting questions, and a question that runs again sees the same windows. The selected segments of a
// cursor are passed in full, because the question's budget bounds them.
//
// Numbers have 64 bits, but columns of the hierarchy may have 32. A function reads a whole column only if its
// comment says so, and it checks what it reads. So columns can be mapped files that are larger than memory. All
// functions are thread-safe and deterministic: one thread handles a cursor. They throw Error for malformed input.
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

// One entry for each segment, in depth-first order: a segment's descendants follow it.
struct Hierarchy {
    std::span<const std::uint8_t> level;  // a Level
    Integers parent;                      // -1: none
    Integers subtree_end;                 // one past the last descendant
};

// Lists of segments, as an op returns them.
struct SegmentLists {
    std::vector<std::int64_t> offsets{0};
    Buffer<std::int64_t> segments;
};

// The column `subtree_end`. Throws Error unless `parent` describes segments in depth-first order. Time:
// O(segments).
PYFAST_API Buffer<std::int64_t> subtree_ends(const Integers& parent);

// Throws Error unless `subtree_end` fits `parent`. Time: O(segments), with constant memory.
PYFAST_API void check_subtree_ends(const Integers& parent, const Integers& subtree_end);

// The order rho: level priority[k] has the segments segments[starts[k] .. starts[k + 1]), ascending. Segments of
// other levels are in a window only if a prior has them.
struct Order {
    std::span<const std::int64_t> segments;
    std::span<const std::int64_t> starts;
};
struct OwnedOrder {
    Buffer<std::int64_t> segments;
    std::vector<std::int64_t> starts;
};

// A stable counting sort, once for each corpus. Time: O(segments).
PYFAST_API OwnedOrder level_order(std::span<const std::uint8_t> level, std::span<const std::uint8_t> priority);

// The deleted segments: `mask` by segment (1: deleted), and `live` by position in rho, 64 in a word. Higher levels
// of words tell which words are not zero, so a window skips any number of deleted segments at once. If both are
// empty, nothing is deleted.
struct Tombstones {
    std::span<const std::uint8_t> mask;
    std::span<const std::uint64_t> live;
};
struct OwnedTombstones {
    Buffer<std::uint8_t> mask;
    Buffer<std::uint64_t> live;
};

// The tombstones of these deleted segments. Time: O(segments).
PYFAST_API OwnedTombstones mark_deleted(const Order& order, std::span<const std::uint8_t> mask);

// A copy of `before` in which these segments and their descendants are deleted too. Time: a copy of the
// tombstones, and O(deleted segments).
PYFAST_API OwnedTombstones delete_segments(const Hierarchy& hierarchy, const Order& order,
                                           const Tombstones& before, std::span<const std::int64_t> segments);

struct Stream {
    std::int64_t size = 0;  // the number of segments of the corpus
    Order order;
    Tombstones tombstones;
};

// One entry for each cursor.
struct Cursors {
    std::span<const std::int64_t> place;  // where the windows begin: a position in the prior, continued in rho
    Ragged<std::int64_t> selected;
    Ragged<std::int64_t> prior;
};

// For each cursor, the first `width` segments that are neither selected nor deleted, or fewer at the end. Time for
// each cursor: O(width + its prior + its selected segments).
PYFAST_API SegmentLists window(const Stream& stream, const Cursors& cursors, std::int64_t width, int threads);

struct Refreshed {
    Buffer<std::int64_t> place;
    SegmentLists selected;
};

// The cursors after a step, in which `chosen` segments become selected, inside or outside the window. With `past`
// = 0, segments that were not selected stay in the window, and new ones fill it up. Otherwise the cursor moves
// past the first `past` segments of its old window. Time for each cursor: O(past + its prior + its selected and
// chosen segments).
PYFAST_API Refreshed refresh(const Stream& stream, const Cursors& cursors, const Ragged<std::int64_t>& chosen,
                             std::int64_t past, int threads);

// The neighbours of a segment:
//   children  the segments whose parent it is
//   parent    its parent, if it has one
//   row       for a table cell: the other cells of its row
//   column    for a table cell, the k-th of its row: the k-th cell of each other row that has k cells
//   relation  for a triple: the other triples of its subgraph, which in pyfast have the same head
// All are ascending. Segments of other levels have none. Deleted segments are left out.
enum class Neighbors : std::uint8_t { children, parent, row, column, relation };

// The neighbours of each list of segments: in the order of the list, each once, without the segments in the list
// of `excluded` (if it has no lists, nothing is excluded), at most `limit`. Time: O(neighbours) for each segment;
// `column`: O(rows).
PYFAST_API SegmentLists neighbors(const Hierarchy& hierarchy, std::span<const std::uint8_t> mask,
                                  const Ragged<std::int64_t>& segments, const Ragged<std::int64_t>& excluded,
                                  Neighbors kind, std::int64_t limit, int threads);

}  // namespace pyfast
