// Which places of a stream are live, as in csrc/cpu/live_places.hpp: one bit for each, in words. Higher words have
// one bit for each lower word that is not zero.
#pragma once

#include "gpu.cuh"

namespace pyfast::cuda {

struct LivePlaces {
    static constexpr int most_heights = 11;

    const std::uint64_t* words;        // null: all places are live
    std::int64_t begin[most_heights];  // where the words of each height begin
    std::int64_t count[most_heights];
    int heights;
    std::int64_t places;

    [[nodiscard]] __device__ bool is_live(std::int64_t place) const {
        return place < places && (words == nullptr || (words[place / 64] >> (place % 64) & 1) != 0);
    }

    // The first live place from `place` on, or the number of places. If the words contradict each other, it
    // reports a fault, and there are no more places.
    [[nodiscard]] __device__ std::int64_t next(std::int64_t place, std::int32_t* status) const {
        if (words == nullptr || place >= places) {
            return place < places ? place : places;
        }
        std::int64_t at = place;  // a position among the bits of height h
        for (int h = 0; h < heights; ++h) {
            const std::int64_t word = at / 64;
            if (word >= count[h]) {
                return places;
            }
            const std::uint64_t rest = words[begin[h] + word] >> (at % 64);
            if (rest != 0) {
                return descend(h, at + lowest(rest), status);
            }
            at = word + 1;
        }
        return places;
    }

  private:
    [[nodiscard]] static __device__ int lowest(std::uint64_t bits) {
        return __ffsll(static_cast<long long>(bits)) - 1;
    }

    [[nodiscard]] __device__ std::int64_t descend(int h, std::int64_t at, std::int32_t* status) const {
        for (; h > 0; --h) {
            if (at >= count[h - 1] || words[begin[h - 1] + at] == 0) {
                report(status, Fault::tombstones);
                return places;
            }
            at = at * 64 + lowest(words[begin[h - 1] + at]);
        }
        return at < places ? at : places;
    }
};

}  // namespace pyfast::cuda
