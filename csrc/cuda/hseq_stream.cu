#include <algorithm>
#include <string>

#include "known_segments.cuh"
#include "live_places.cuh"
#include "pools.cuh"
#include "pyfast/cuda/hseq_stream.hpp"
#include "pyfast/error.hpp"
#include "scan.cuh"

namespace pyfast::cuda {

namespace {

constexpr int threads = 128;
constexpr int warps = threads / lanes;

struct StreamArrays {
    std::int64_t size;
    const std::int64_t* order;
    const std::uint8_t* mask;  // null: nothing is deleted
    LivePlaces live;
};

struct CursorArrays {
    const std::int64_t* place;
    std::int64_t count;
    RaggedArrays<std::int64_t> selected;
    RaggedArrays<std::int64_t> prior;
    RaggedArrays<std::int64_t> chosen;  // used by refresh; otherwise it has no lists
};

struct Memory {
    std::int64_t* segments;
    std::int32_t* marks;
    std::int32_t* first;
    std::uint8_t* kept;     // for each choice, whether it is new
    std::int64_t* windows;  // `width` for each cursor
    std::int64_t* scan;
};

__device__ void check_segments(const RaggedArrays<std::int64_t>& lists, std::int64_t i, std::int64_t size,
                               std::int32_t* status) {
    if (i < lists.lists && !offsets_hold(lists, i)) {
        report(status, Fault::offsets);
    }
    if (i < lists.size && (lists.values[i] < 0 || lists.values[i] >= size)) {
        report(status, Fault::segments);
    }
}

// Checks everything except the order. Of the order, only the entries that a cursor reads are checked later.
__global__ void check_cursors_kernel(StreamArrays stream, CursorArrays cursors, std::int64_t items,
                                     std::int32_t* status) {
    for (std::int64_t i = thread_of_grid(); i < items; i += threads_of_grid()) {
        check_segments(cursors.selected, i, stream.size, status);
        check_segments(cursors.prior, i, stream.size, status);
        check_segments(cursors.chosen, i, stream.size, status);
        if (i < cursors.count && offsets_hold(cursors.prior, i)) {
            const std::int64_t length = cursors.prior.offsets[i + 1] - cursors.prior.offsets[i];
            if (cursors.place[i] < 0 || cursors.place[i] > length + stream.live.places) {
                report(status, Fault::places);
            }
        }
    }
}

// Whether there are faults. All lanes get the same result, even if other warps report a fault at this moment.
__device__ bool stopped(std::int32_t* status) {
    const int found = lane_of_thread() == 0 ? atomicOr(status, 0) : 0;
    return __shfl_sync(all_lanes, found, 0) != 0;
}

// For a warp: the table of cursor c, with its prior and its selected segments.
__device__ KnownSegments know(const CursorArrays& cursors, const Memory& memory, std::int64_t c,
                              std::int32_t* status) {
    const bool choices = cursors.chosen.offsets != nullptr;
    const std::int64_t begin =
        cursors.selected.offsets[c] + cursors.prior.offsets[c] + (choices ? cursors.chosen.offsets[c] : 0);
    const std::int64_t end = cursors.selected.offsets[c + 1] + cursors.prior.offsets[c + 1] +
                             (choices ? cursors.chosen.offsets[c + 1] : 0);
    const std::int64_t at = KnownSegments::room * begin;
    const KnownSegments known(memory.segments + at, memory.marks + at, choices ? memory.first + at : nullptr,
                              end - begin);
    known.clear();
    for (std::int64_t i = cursors.prior.offsets[c] + lane_of_thread(); i < cursors.prior.offsets[c + 1];
         i += lanes) {
        if ((atomicOr(known.marks + known.add(cursors.prior.values[i]), KnownSegments::prior) &
             KnownSegments::prior) != 0) {
            report(status, Fault::segments);  // it occurs twice
        }
    }
    for (std::int64_t i = cursors.selected.offsets[c] + lane_of_thread(); i < cursors.selected.offsets[c + 1];
         i += lanes) {
        atomicOr(known.marks + known.add(cursors.selected.values[i]), KnownSegments::taken);
    }
    __syncwarp();
    return known;
}

// The first `room` of the lanes whose place counts, as bits, and the number of places up to the last of them.
struct Taken {
    unsigned lanes;
    int passed;
};
__device__ Taken take(bool counts, std::int64_t room) {
    unsigned left = __ballot_sync(all_lanes, counts);
    if (__popc(left) < room) {
        return {left, lanes};
    }
    const unsigned all = left;
    for (std::int64_t k = 1; k < room; ++k) {
        left &= left - 1;  // removes the lowest bit
    }
    const int last = __ffs(static_cast<int>(left)) - 1;
    return {all & (0xFFFFFFFFU >> (31 - last)), last + 1};
}

__device__ inline void write_taken(unsigned taken, std::int64_t segment, std::int64_t* out) {
    const unsigned lane_bit = 1U << lane_of_thread();
    if (out != nullptr && (taken & lane_bit) != 0) {
        out[__popc(taken & (lane_bit - 1))] = segment;
    }
}

struct Walked {
    std::int64_t place;
    std::int64_t count;
};

// For a warp: writes the first `width` segments of cursor c's window to `out`, unless it is null. Returns the
// place behind them.
__device__ Walked walk(const StreamArrays& stream, const CursorArrays& cursors, const KnownSegments& known,
                       std::int64_t c, std::int64_t width, std::int64_t* out, std::int32_t* status) {
    const std::int64_t* const prior = cursors.prior.values + cursors.prior.offsets[c];
    const std::int64_t length = cursors.prior.offsets[c + 1] - cursors.prior.offsets[c];
    std::int64_t count = 0;
    std::int64_t place = cursors.place[c];
    while (count < width && place < length) {
        const std::int64_t here = place + lane_of_thread();
        const std::int64_t segment = here < length ? prior[here] : 0;
        const bool counts = here < length && (known.marks_of(segment) & KnownSegments::taken) == 0 &&
                            (stream.mask == nullptr || stream.mask[segment] == 0);
        const Taken taken = take(counts, width - count);
        write_taken(taken.lanes, segment, out == nullptr ? nullptr : out + count);
        count += __popc(taken.lanes);
        place = place + taken.passed < length ? place + taken.passed : length;
    }
    const std::int64_t places = stream.live.places;
    std::int64_t in_order = place > length ? place - length : 0;
    while (count < width && place >= length) {
        in_order = stream.live.next(in_order, status);
        if (in_order >= places) {
            break;
        }
        const std::int64_t here = in_order + lane_of_thread();
        const bool live = stream.live.is_live(here);
        const std::int64_t segment = live ? stream.order[here] : 0;
        const bool malformed = segment < 0 || segment >= stream.size;
        const Taken taken = take(live && !malformed && known.marks_of(segment) == 0, width - count);
        if (malformed && lane_of_thread() < taken.passed) {
            report(status, Fault::segments);
        }
        write_taken(taken.lanes, segment, out == nullptr ? nullptr : out + count);
        count += __popc(taken.lanes);
        in_order = in_order + taken.passed < places ? in_order + taken.passed : places;
    }
    return {place < length ? place : length + in_order, count};
}

// One warp for each cursor: writes the window to memory.windows, and its length to counts[c + 1].
__global__ void window_kernel(StreamArrays stream, CursorArrays cursors, Memory memory, std::int64_t width,
                              std::int64_t* counts, std::int32_t* status) {
    for (std::int64_t c = warp_of_grid(); c < cursors.count; c += warps_of_grid()) {
        if (stopped(status)) {
            return;  // the whole warp returns; there is no barrier
        }
        const KnownSegments known = know(cursors, memory, c, status);
        const Walked walked = walk(stream, cursors, known, c, width, memory.windows + c * width, status);
        if (lane_of_thread() == 0) {
            counts[c + 1] = walked.count;
        }
    }
}

__global__ void gather_kernel(const std::int64_t* windows, std::int64_t cursors, std::int64_t width,
                              const std::int64_t* offsets, std::int64_t* segments, const std::int32_t* status) {
    if (*status != 0) {
        return;
    }
    for (std::int64_t c = warp_of_grid(); c < cursors; c += warps_of_grid()) {
        const std::int64_t count = offsets[c + 1] - offsets[c];
        for (std::int64_t k = lane_of_thread(); k < count; k += lanes) {
            segments[offsets[c] + k] = windows[c * width + k];
        }
    }
}

// One warp for each cursor: finds its new place, and which of its choices are new.
__global__ void refresh_kernel(StreamArrays stream, CursorArrays cursors, Memory memory, std::int64_t past,
                               std::int64_t* place, std::int64_t* counts, std::int32_t* status) {
    for (std::int64_t c = warp_of_grid(); c < cursors.count; c += warps_of_grid()) {
        if (stopped(status)) {
            return;  // the whole warp returns; there is no barrier
        }
        const KnownSegments known = know(cursors, memory, c, status);
        const Walked walked = walk(stream, cursors, known, c, past, nullptr, status);
        const std::int64_t begin = cursors.chosen.offsets[c];
        const std::int64_t end = cursors.chosen.offsets[c + 1];
        __syncwarp();  // other lanes may still read the table
        for (std::int64_t i = begin + lane_of_thread(); i < end; i += lanes) {
            atomicMin(known.first + known.add(cursors.chosen.values[i]), static_cast<int>(i - begin));
        }
        __syncwarp();
        int fresh = 0;
        for (std::int64_t i = begin + lane_of_thread(); i < end; i += lanes) {
            const std::int64_t slot = known.add(cursors.chosen.values[i]);
            const bool kept = (known.marks[slot] & KnownSegments::taken) == 0 && known.first[slot] == i - begin;
            memory.kept[i] = kept ? 1 : 0;
            fresh += kept ? 1 : 0;
        }
        fresh = warp_sum(fresh);
        if (lane_of_thread() == 0) {
            place[c] = walked.place;
            counts[c + 1] = cursors.selected.offsets[c + 1] - cursors.selected.offsets[c] + fresh;
        }
    }
}

// Writes the selected segments, then the new choices in their order.
__global__ void select_kernel(CursorArrays cursors, const std::uint8_t* kept, const std::int64_t* offsets,
                              std::int64_t* segments, const std::int32_t* status) {
    if (*status != 0) {
        return;
    }
    for (std::int64_t c = warp_of_grid(); c < cursors.count; c += warps_of_grid()) {
        const std::int64_t begin = cursors.selected.offsets[c];
        const std::int64_t length = cursors.selected.offsets[c + 1] - begin;
        std::int64_t* out = segments + offsets[c];
        for (std::int64_t i = lane_of_thread(); i < length; i += lanes) {
            out[i] = cursors.selected.values[begin + i];
        }
        out += length;
        const std::int64_t end = cursors.chosen.offsets[c + 1];
        for (std::int64_t first = cursors.chosen.offsets[c]; first < end; first += lanes) {
            const std::int64_t i = first + lane_of_thread();
            const unsigned fresh = __ballot_sync(all_lanes, i < end && kept[i] != 0);
            write_taken(fresh, i < end ? cursors.chosen.values[i] : 0, out);
            out += __popc(fresh);
        }
    }
}

LivePlaces live_places(std::span<const std::uint64_t> words, std::size_t places) {
    LivePlaces live{words.empty() ? nullptr : words.data(), {}, {}, 0, static_cast<std::int64_t>(places)};
    if (words.empty()) {
        return live;
    }
    std::int64_t first = 0;
    for (auto n = static_cast<std::int64_t>(places); live.heights == 0 || n > 1; ++live.heights) {
        n = n == 0 ? 1 : (n - 1) / 64 + 1;
        live.begin[live.heights] = first;
        live.count[live.heights] = n;
        first += n;
    }
    if (first != static_cast<std::int64_t>(words.size())) {
        throw Error("live: must hold " + std::to_string(first) + " words of 64 bits for " +
                    std::to_string(places) + " positions, got " + std::to_string(words.size()));
    }
    return live;
}

StreamArrays stream_arrays(const Stream& stream) {
    const auto& [mask, live] = stream.tombstones;
    if (stream.order.segments.size() > static_cast<std::size_t>(std::max<std::int64_t>(stream.size, 0))) {
        throw Error("order: has " + std::to_string(stream.order.segments.size()) +
                    " segments, but the corpus has " + std::to_string(stream.size));
    }
    if (stream.size != 0 && (mask.empty() != live.empty() ||
                             (!mask.empty() && static_cast<std::int64_t>(mask.size()) != stream.size))) {
        throw Error("tombstones: the mask must have one entry for each of " + std::to_string(stream.size) +
                    " segments, and be given together with `live`");
    }
    return {stream.size, stream.order.segments.data(), mask.empty() ? nullptr : mask.data(),
            live_places(live, stream.order.segments.size())};
}

RaggedArrays<std::int64_t> lists_of(const Ragged<std::int64_t>& lists, std::size_t cursors, const char* name) {
    const RaggedArrays<std::int64_t> arrays = ragged_arrays(lists, name);
    if (lists.size() != cursors) {
        throw Error(std::string(name) + ": must have one list for each of " + std::to_string(cursors) +
                    " cursors, but has " + std::to_string(lists.size()));
    }
    if (cursors == 0 && !lists.values.empty()) {
        throw Error(std::string(name) + ": there are values, but no lists");
    }
    return arrays;
}

CursorArrays cursor_arrays(const Cursors& cursors) {
    const std::size_t count = cursors.place.size();
    return {cursors.place.data(), static_cast<std::int64_t>(count), lists_of(cursors.selected, count, "selected"),
            lists_of(cursors.prior, count, "priors"), RaggedArrays<std::int64_t>{nullptr, nullptr, 0, 0}};
}

// The useful width of a window: at most the number of segments of the stream.
std::int64_t useful_width(const Stream& stream, const Cursors& cursors, std::int64_t width) {
    const std::size_t all = stream.order.segments.size() + cursors.prior.values.size();
    return std::clamp<std::int64_t>(width, 0, static_cast<std::int64_t>(all));
}

Memory lay_out(Arena& arena, const Cursors& cursors, std::size_t choices, bool of_refresh, std::size_t windows) {
    const std::size_t known = cursors.selected.values.size() + cursors.prior.values.size() + choices;
    const std::size_t slots = KnownSegments::room * known;
    return {arena.take<std::int64_t>(slots),
            arena.take<std::int32_t>(slots),
            arena.take<std::int32_t>(of_refresh ? slots : 0),
            arena.take<std::uint8_t>(choices),
            arena.take<std::int64_t>(windows),
            arena.take<std::int64_t>(scan_memory(cursors.place.size() + 1))};
}

void check_cursors(const StreamArrays& stream, const CursorArrays& cursors, const Queue& queue) {
    const std::int64_t items =
        std::max({cursors.count, cursors.selected.size, cursors.prior.size, cursors.chosen.size});
    GPU_LAUNCH(check_cursors_kernel, blocks_for(static_cast<std::size_t>(items), threads), threads, 0,
               stream_of(queue), stream, cursors, items, queue.status);
}

void begin_offsets(std::size_t cursors, std::span<std::int64_t> offsets, const Queue& queue) {
    if (offsets.size() != cursors + 1) {
        throw Error("offsets: must hold one more number than there are cursors");
    }
    cudaMemsetAsync(offsets.data(), 0, sizeof(std::int64_t), stream_of(queue));
}

}  // namespace

std::size_t window_workspace(const Stream& stream, const Cursors& cursors, std::int64_t width) {
    Arena arena;
    const auto windows = cursors.place.size() * static_cast<std::size_t>(useful_width(stream, cursors, width));
    lay_out(arena, cursors, 0, false, windows);
    return arena.used();
}

void window(const Stream& stream, const Cursors& cursors, std::int64_t width, std::span<std::int64_t> offsets,
            std::span<std::int64_t> segments, const Queue& queue) {
    if (width < 0) {
        throw Error("width: must not be negative");
    }
    const StreamArrays arrays = stream_arrays(stream);
    const CursorArrays batch = cursor_arrays(cursors);
    check_queue(queue, window_workspace(stream, cursors, width));
    const std::size_t count = cursors.place.size();
    begin_offsets(count, offsets, queue);
    if (count == 0) {
        return;
    }
    const std::int64_t most = useful_width(stream, cursors, width);
    Arena arena(queue.workspace.data());
    const Memory memory = lay_out(arena, cursors, 0, false, count * static_cast<std::size_t>(most));
    const unsigned blocks = blocks_for(count, warps);
    check_cursors(arrays, batch, queue);
    GPU_LAUNCH(window_kernel, blocks, threads, 0, stream_of(queue), arrays, batch, memory, most, offsets.data(),
               queue.status);
    scan(offsets.data(), offsets.size(), memory.scan, queue.status, stream_of(queue));
    check_total(offsets.data() + count, static_cast<std::int64_t>(segments.size()), queue);
    GPU_LAUNCH(gather_kernel, blocks, threads, 0, stream_of(queue), memory.windows, batch.count, most,
               offsets.data(), segments.data(), queue.status);
    check_launch("window");
}

std::size_t refresh_workspace(const Cursors& cursors, const Ragged<std::int64_t>& chosen) {
    Arena arena;
    lay_out(arena, cursors, chosen.values.size(), true, 0);
    return arena.used();
}

void refresh(const Stream& stream, const Cursors& cursors, const Ragged<std::int64_t>& chosen, std::int64_t past,
             const RefreshedArrays& out, const Queue& queue) {
    if (past < 0) {
        throw Error("past: must not be negative");
    }
    const StreamArrays arrays = stream_arrays(stream);
    CursorArrays batch = cursor_arrays(cursors);
    const std::size_t count = cursors.place.size();
    batch.chosen = lists_of(chosen, count, "chosen");
    if (out.place.size() != count || out.segments.size() < cursors.selected.values.size() + chosen.values.size()) {
        throw Error("place, segments: must have room for the cursors after the step");
    }
    check_queue(queue, refresh_workspace(cursors, chosen));
    begin_offsets(count, out.offsets, queue);
    if (count == 0) {
        return;
    }
    Arena arena(queue.workspace.data());
    const Memory memory = lay_out(arena, cursors, chosen.values.size(), true, 0);
    const unsigned blocks = blocks_for(count, warps);
    check_cursors(arrays, batch, queue);
    GPU_LAUNCH(refresh_kernel, blocks, threads, 0, stream_of(queue), arrays, batch, memory, past, out.place.data(),
               out.offsets.data(), queue.status);
    scan(out.offsets.data(), out.offsets.size(), memory.scan, queue.status, stream_of(queue));
    GPU_LAUNCH(select_kernel, blocks, threads, 0, stream_of(queue), batch, memory.kept, out.offsets.data(),
               out.segments.data(), queue.status);
    check_launch("refresh");
}

}  // namespace pyfast::cuda
