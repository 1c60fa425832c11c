// Some terms of one document in a hash table in shared memory. A warp uses it for the rows that it compares with
// them.
#pragma once

#include "gpu.cuh"

namespace pyfast::cuda {

struct RowTable {
    static constexpr int slots = 512;
    static constexpr int most = slots / 2;  // the number of terms at a time
    static constexpr float absent = -1.0f;  // a stored weight of 0 counts as present

    std::int32_t* terms;  // [slots]; -1: a free slot
    float* weights;       // [slots]

    [[nodiscard]] static __device__ int first_slot(std::int32_t term) {
        return static_cast<int>(static_cast<std::uint32_t>(term) * 0x9E3779B9U >> 23);
    }
    // Called by all lanes, like the other functions.
    __device__ void clear() const {
        __syncwarp();  // other lanes may still read
        for (int slot = lane_of_thread(); slot < slots; slot += lanes) {
            terms[slot] = -1;
        }
        __syncwarp();
    }
    // Each lane adds its own term, and no term twice. Call __syncwarp() before the table is searched.
    __device__ void add(std::int32_t term, float weight) const {
        int slot = first_slot(term);
        while (atomicCAS(terms + slot, -1, term) != -1) {
            slot = (slot + 1) % slots;
        }
        weights[slot] = weight;
    }
    [[nodiscard]] __device__ float weight_of(std::int32_t term) const {
        int slot = first_slot(term);
        while (terms[slot] != term && terms[slot] != -1) {
            slot = (slot + 1) % slots;
        }
        return terms[slot] == term ? weights[slot] : absent;
    }
};

}  // namespace pyfast::cuda
