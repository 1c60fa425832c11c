// What the kernels of gatv2 share: the graph, and rows of features as the lanes of a warp hold them.
#pragma once

#include <type_traits>

#include "gpu.cuh"
#include "pyfast/gatv2.hpp"

namespace pyfast::cuda {

__device__ inline float to_float(float number) { return number; }
__device__ inline float to_float(bfloat16 number) { return __int_as_float(static_cast<int>(number.bits) << 16); }
__device__ inline void store(float number, float& to) { to = number; }
__device__ inline void store(float number, bfloat16& to) {  // as pyfast::narrow
    const auto bits = static_cast<std::uint32_t>(__float_as_int(number));
    const std::uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    to.bits = static_cast<std::uint16_t>(number == number ? rounded : bits >> 16 | 0x40);
}

struct Gatv2Edges {
    const std::int64_t* indptr;
    const std::int32_t* indices32;  // exactly one of the two is set
    const std::int64_t* indices64;
    std::int64_t stored;  // loop i is edge stored + i
    std::int64_t sources;
    std::int64_t destinations;
    bool self_loops;

    [[nodiscard]] __device__ std::int64_t source(std::int64_t edge) const {
        return indices64 != nullptr ? indices64[edge] : indices32[edge];
    }
    // Whether a self-loop replaces this stored edge from `node` to `destination`.
    [[nodiscard]] __device__ bool replaced(std::int64_t node, std::int64_t destination) const {
        return self_loops && node == destination;
    }
    // For a warp: calls use(edge, source) for each edge of the destination that counts, with all lanes at a time.
    template <class Use>
    __device__ void each(std::int64_t destination, const Use& use) const {
        const std::int64_t end = indptr[destination + 1];
        for (std::int64_t first = indptr[destination]; first < end; first += lanes) {
            const std::int64_t mine = first + lane_of_thread();
            const std::int64_t known = mine < end ? source(mine) : 0;
            const int count = end - first < lanes ? static_cast<int>(end - first) : lanes;
            for (int k = 0; k < count; ++k) {
                const std::int64_t node = __shfl_sync(all_lanes, known, k);
                if (!replaced(node, destination)) {
                    use(first + k, node);
                }
            }
        }
        if (self_loops && destination < sources) {
            use(stored + destination, destination);
        }
    }
    // For a warp: calls use(edge, absent) for each row of attention that belongs to the destination, one lane for
    // each. Absent are stored loops, and the loop of a destination without a source of its number.
    template <class Use>
    __device__ void each_of_lane(std::int64_t destination, const Use& use) const {
        for (std::int64_t edge = indptr[destination] + lane_of_thread(); edge < indptr[destination + 1];
             edge += lanes) {
            use(edge, replaced(source(edge), destination));
        }
        if (self_loops && lane_of_thread() == 0) {
            use(stored + destination, destination >= sources);
        }
    }
};

template <class T>
struct Gatv2Arrays {
    Gatv2Edges edges;
    const T* x_src;
    const T* x_dst;
    const T* att;
    std::int64_t heads;
    std::int64_t channels;
    float slope;

    // Where a head begins in the row of a node of x_src, x_dst or a similar array, or of att (node 0).
    [[nodiscard]] __device__ std::int64_t row(std::int64_t node, std::int64_t head) const {
        return (node * heads + head) * channels;
    }
};

// The channels of a head in a warp: each lane has `Width`, and the k-th is channel lane + 32 k. Those beyond the
// last channel are 0.
template <int Width>
struct Channels {
    float of[Width];

    __device__ void clear() {
        for (int k = 0; k < Width; ++k) {
            of[k] = 0.0f;
        }
    }
    template <class T>
    __device__ void load(const T* row, std::int64_t channels) {
#pragma unroll
        for (int k = 0; k < Width; ++k) {
            const int channel = lane_of_thread() + k * lanes;
            of[k] = channel < channels ? to_float(row[channel]) : 0.0f;
        }
    }
    template <class T>
    __device__ void save(T* row, std::int64_t channels) const {
#pragma unroll
        for (int k = 0; k < Width; ++k) {
            const int channel = lane_of_thread() + k * lanes;
            if (channel < channels) {
                store(of[k], row[channel]);
            }
        }
    }
};

// Whether an edge's weight of a head is dropped. It is number `at` of the SplitMix64 generator that starts at a
// mix of the seed, as on the CPU.
struct Gatv2Dropout {
    std::uint64_t start;
    double probability;
    const std::uint8_t* mask;  // null: the generator decides

    static constexpr std::uint64_t step = 0x9E3779B97F4A7C15;
    __host__ __device__ static std::uint64_t mix(std::uint64_t z) {
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
        z = (z ^ z >> 27) * 0x94D049BB133111EB;
        return z ^ z >> 31;
    }
    [[nodiscard]] __device__ bool operator()(std::int64_t at) const {
        if (mask != nullptr) {
            return mask[at] == 0;
        }
        if (probability == 0.0) {
            return false;
        }
        const std::uint64_t random = mix(start + step * static_cast<std::uint64_t>(at));
        return static_cast<double>(random >> 11) * 0x1p-53 < probability;
    }
};

// Calls use(width) with the smallest number of channels for each lane that has a kernel, as a constant of at most
// `Most`.
template <int Most = 32, class Use>
void with_width(std::int64_t channels, const Use& use) {
    if (channels <= 2 * lanes) {
        use(std::integral_constant<int, 2>{});
    } else if (channels <= 4 * lanes) {
        use(std::integral_constant<int, 4>{});
    } else if (channels <= 8 * lanes) {
        use(std::integral_constant<int, 8>{});
    } else if (Most == 16 || channels <= 16 * lanes) {
        use(std::integral_constant<int, 16>{});
    } else if constexpr (Most > 16) {
        use(std::integral_constant<int, Most>{});
    }
}

// On the host: checks the lengths of the layer. Throws Error as pyfast::gatv2 does.
template <class T>
Gatv2Arrays<T> gatv2_arrays(const Gatv2Layer<T>& layer, const Gatv2Options& options);
void check_gatv2_size(const char* name, std::size_t found, std::size_t expected);
// Checks the graph before it is used.
void check_gatv2_graph(const Gatv2Edges& edges, const Queue& queue);

}  // namespace pyfast::cuda
