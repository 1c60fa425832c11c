// The segments of a cursor and their marks: a hash table in the workspace, for one warp.
#pragma once

#include "gpu.cuh"

namespace pyfast::cuda {

struct KnownSegments {
    static constexpr int prior = 1;
    static constexpr int taken = 2;
    static constexpr int room = 4;  // slots in the workspace for each segment

    std::int64_t* segments;  // -1: a free slot
    std::int32_t* marks;
    std::int32_t* first;  // the first choice that is this segment; null: there are no choices
    std::int64_t slots;   // a power of two, or 0

    // The table for this many segments. Its memory has `room` slots for each.
    __device__ KnownSegments(std::int64_t* segments_, std::int32_t* marks_, std::int32_t* first_,
                             std::int64_t most)
        : segments(segments_), marks(marks_), first(first_), slots(most == 0 ? 0 : 1) {
        while (slots != 0 && 2 * slots <= room * most) {
            slots *= 2;
        }
    }
    // Called by all lanes.
    __device__ void clear() const {
        for (std::int64_t slot = lane_of_thread(); slot < slots; slot += lanes) {
            segments[slot] = -1;
            marks[slot] = 0;
            if (first != nullptr) {
                first[slot] = 0x7FFFFFFF;
            }
        }
        __syncwarp();
    }
    [[nodiscard]] __device__ std::int64_t first_slot(std::int64_t segment) const {
        const std::uint64_t mixed = static_cast<std::uint64_t>(segment) * 0x9E3779B97F4A7C15U;
        return static_cast<std::int64_t>(mixed >> 32) & (slots - 1);
    }
    // The slot of a segment. A new segment gets a free slot.
    [[nodiscard]] __device__ std::int64_t add(std::int64_t segment) const {
        constexpr auto free = ~0ULL;
        const auto wanted = static_cast<unsigned long long>(segment);
        std::int64_t slot = first_slot(segment);
        for (;;) {
            const unsigned long long found =
                atomicCAS(reinterpret_cast<unsigned long long*>(segments + slot), free, wanted);
            if (found == free || found == wanted) {
                return slot;
            }
            slot = (slot + 1) & (slots - 1);
        }
    }
    // The marks of a segment. Call __syncwarp() between add() and this.
    [[nodiscard]] __device__ int marks_of(std::int64_t segment) const {
        if (slots == 0) {
            return 0;
        }
        std::int64_t slot = first_slot(segment);
        while (segments[slot] != segment && segments[slot] != -1) {
            slot = (slot + 1) & (slots - 1);
        }
        return segments[slot] == segment ? marks[slot] : 0;
    }
};

}  // namespace pyfast::cuda
