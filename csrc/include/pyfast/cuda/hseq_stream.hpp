// hseq_stream on a GPU: the windows of the cursors of many questions, and their steps.
//
// A stream is made on the CPU, once for each corpus, and copied to the device unchanged. All spans are device
// memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pyfast/api.hpp"
#include "pyfast/cuda/device.hpp"
#include "pyfast/hseq_stream.hpp"

namespace pyfast::cuda {

// Bytes: 48 for each segment of priors and selections, 8 for each segment that fits into the windows, and a little
// more.
PYFAST_API std::size_t window_workspace(const Stream& stream, const Cursors& cursors, std::int64_t width);

// The same numbers as from pyfast::window: `offsets` [cursors + 1], and `segments`, which must have room for all
// of them; cursors * width entries are always enough.
//
// A warp handles a cursor. It keeps the cursor's segments in a hash table, and reads 32 places of the stream at a
// time. A ballot tells where the segments of the window go. Where the tombstones show that no place is live, it
// skips ahead. Throws Error for lengths that do not fit. Faults: offsets, segments, places, tombstones, bounds.
PYFAST_API void window(const Stream& stream, const Cursors& cursors, std::int64_t width,
                       std::span<std::int64_t> offsets, std::span<std::int64_t> segments, const Queue& queue);

// Bytes: 64 for each segment of priors, selections and choices, and a little more.
PYFAST_API std::size_t refresh_workspace(const Cursors& cursors, const Ragged<std::int64_t>& chosen);

// Cursors after a step: their places, and what they have selected. `segments` must have room for the selected and
// the chosen segments together.
struct RefreshedArrays {
    std::span<std::int64_t> place;
    std::span<std::int64_t> offsets;
    std::span<std::int64_t> segments;
};

// The same numbers as from pyfast::refresh. Throws and sets faults as window does.
PYFAST_API void refresh(const Stream& stream, const Cursors& cursors, const Ragged<std::int64_t>& chosen,
                        std::int64_t past, const RefreshedArrays& out, const Queue& queue);

}  // namespace pyfast::cuda
