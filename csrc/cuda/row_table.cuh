// Some terms of one document as a hash table in shared memory: a warp's, for the rows that it compares with them.
#pragma once

#include "gpu.cuh"

namespace pyfast::cuda {

struct RowTable {
    static constexpr int slots = 512;
    static constexpr int most = slots / 2;  // terms at a time
    static constexpr float absent = -1.0f;  // a stored 0 counts as held

    std::int32_t* terms;  // [slots]; -1: a free slot
    float* weights;       // [slots]

    [[nodiscard]] static __device__ int first_slot(std::int32_t term) {
        return static_cast<int>(static_cast<std::uint32_t>(term) * 0x9E3779B9U >> 23);
    }
    // By all lanes, as are the others.
    __device__ void clear() const {
        __syncwarp();  // others may still be reading
        for (int slot = lane_of_thread(); slot < slots; slot += lanes) {
            terms[slot] = -1;
        }
        __syncwarp();
    }
    // A lane's own term, none twice; __syncwarp() before any is looked for.
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
