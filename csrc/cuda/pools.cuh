// The forward index and the pools as kernels read them.
#pragma once

#include "gpu.cuh"
#include "pyfast/cuda/pools.hpp"

namespace pyfast::cuda {

struct ForwardArrays {
    const std::int64_t* indptr64;
    const std::int32_t* indptr32;
    const std::int64_t* indices64;
    const std::int32_t* indices32;
    const float* weights;
    std::int64_t entries;
    std::int64_t documents;
    std::int64_t terms;

    [[nodiscard]] __device__ std::int64_t offset(std::int64_t document) const {
        return indptr64 != nullptr ? indptr64[document] : indptr32[document];
    }
    [[nodiscard]] __device__ std::int64_t index(std::int64_t entry) const {
        return indices64 != nullptr ? indices64[entry] : indices32[entry];
    }
    // The same for a row that was checked.
    [[nodiscard]] __device__ std::int32_t term(std::int64_t entry) const {
        return static_cast<std::int32_t>(index(entry));
    }
};

template <class T>
struct RaggedArrays {
    const std::int64_t* offsets;
    const T* values;
    std::int64_t lists;
    std::int64_t size;  // the number of values
};
using PoolArrays = RaggedArrays<std::int32_t>;

// From views of device memory. Throws Error if the lengths of the spans do not fit each other.
ForwardArrays forward_arrays(const Forward& x);
PoolArrays pool_arrays(const Pools& pools);
template <class T>
RaggedArrays<T> ragged_arrays(const Ragged<T>& lists, const char* name) {
    if (lists.offsets.empty()) {
        throw Error(std::string(name) + ": must hold one more number than there are lists");
    }
    return {lists.offsets.data(), lists.values.data(), static_cast<std::int64_t>(lists.size()),
            static_cast<std::int64_t>(lists.values.size())};
}

// Checks everything that an op reads for these pools, before it reads it, and that no pool has more documents than
// `most`.
void check_pools(const ForwardArrays& x, const PoolArrays& pools, std::int64_t most, const Queue& queue);

// Whether the offsets of list p are in order.
template <class T>
__device__ inline bool offsets_hold(const RaggedArrays<T>& lists, std::int64_t p) {
    const std::int64_t first = lists.offsets[p];
    const std::int64_t last = lists.offsets[p + 1];
    return first >= 0 && first <= last && last <= lists.size && (p > 0 || first == 0) &&
           (p + 1 < lists.lists || last == lists.size);
}

}  // namespace pyfast::cuda
