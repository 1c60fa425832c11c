// What the kernels of gatv2 share: the graph, and rows of features as the lanes of a warp hold them.
#pragma once

#include <type_traits>

#include "gpu.cuh"
#include "pyfast/gatv2.hpp"

namespace pyfast::cuda {

__device__ inline float to_float(float number) { return number; }
__device__ inline float to_float(bfloat16 number) { return __int_as_float(static_cast<int>(number.bits) << 16); }
__device__ inline void store(float number, float& to) { to = number; }
__device__ inline void store(float number, bfloat16& to) {  // rounds as pyfast::narrow does
    const auto bits = static_cast<std::uint32_t>(__float_as_int(number));
    const std::uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    to.bits = static_cast<std::uint16_t>(number == number ? rounded : bits >> 16 | 0x40);
}

// Some edges of a destination. Those from `count` on do not exist, and repeat the numbers of another edge.
template <int Together>
struct Batch {
    int edge[Together];
    int node[Together];
    int count;
};

struct Gatv2Edges {
    const std::int64_t* indptr;
    const std::int32_t* indices32;  // exactly one of the two is set
    const std::int64_t* indices64;
    std::int64_t stored;   // loop i is edge stored + i; 31 bits can count them all
    std::int64_t sources;  // 31 bits can count them
    std::int64_t destinations;
    bool self_loops;

    [[nodiscard]] __device__ std::int64_t source(std::int64_t edge) const {
        return indices64 != nullptr ? indices64[edge] : indices32[edge];
    }
    // Whether a self-loop replaces this stored edge from `node` to `destination`.
    [[nodiscard]] __device__ bool replaced(std::int64_t node, std::int64_t destination) const {
        return self_loops && node == destination;
    }
    // For a warp: calls use(batch) with all lanes for the edges of the destination, `Together` at a time, with its
    // self-loop and without edges that the loop replaces.
    template <int Together, class Use>
    __device__ void each(std::int64_t destination, const Use& use) const {
        const auto end = static_cast<int>(indptr[destination + 1]);
        const int past = end + (self_loops && destination < sources ? 1 : 0);  // the loop comes last
        for (auto first = static_cast<int>(indptr[destination]); first < past; first += lanes) {
            const int mine = first + lane_of_thread();
            const int known = static_cast<int>(mine < end ? source(mine) : destination);
            const bool counts = mine < end ? !replaced(known, destination) : mine < past;
            unsigned left = __ballot_sync(all_lanes, counts);
            while (left != 0) {
                Batch<Together> batch;
                batch.count = __popc(left);
#pragma unroll
                for (int k = 0; k < Together; ++k) {
                    const int place = left != 0 ? __ffs(static_cast<int>(left)) - 1 : 0;
                    left &= left - 1;
                    batch.edge[k] = first + place < end ? first + place : static_cast<int>(stored + destination);
                    batch.node[k] = __shfl_sync(all_lanes, known, place);
                }
                use(batch);
            }
        }
    }
    // For a warp: calls use(edge, absent) for each row of attention that belongs to the destination, with `lanes /
    // Step` lanes for each row. `absent` is true for edges that a self-loop replaces, and for the loop of a
    // destination if no source has its number.
    template <int Step = lanes, class Use>
    __device__ void each_of_lane(std::int64_t destination, const Use& use) const {
        const int own = lane_of_thread() / (lanes / Step);
        for (std::int64_t edge = indptr[destination] + own; edge < indptr[destination + 1]; edge += Step) {
            use(edge, replaced(source(edge), destination));
        }
        if (self_loops && own == 0) {
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

    [[nodiscard]] __device__ std::int64_t at(std::int64_t edge, std::int64_t head) const {
        return edge * heads + head;
    }
    // Where a head begins in the row of a node of x_src, x_dst or a similar array, or of att (node 0).
    [[nodiscard]] __device__ std::int64_t row(std::int64_t node, std::int64_t head) const {
        return (node * heads + head) * channels;
    }
};

// How the channels of a head lie in a warp: `Span` lanes have a head, and lane l of them has the `Width` groups l,
// l + Span, ... of 4 channels each. The other lanes have the next heads, up to the last. If `Whole`, every group
// is whole and aligned, and is read at once.
template <int Width_, int Span_, bool Whole_>
struct Shape {
    static constexpr int Width = Width_;
    static constexpr int Span = Span_;
    static constexpr bool Whole = Whole_;
    static constexpr int heads = lanes / Span;                    // that a warp handles
    static constexpr std::int64_t most = 4 * Width * Span;        // channels
    static constexpr int together = Width > 2 || !Whole ? 2 : 4;  // edges that a warp reads at the same time
    static constexpr int blocks = 4;  // on a multiprocessor, so that a thread has 128 registers
    static constexpr bool largest = Width == (Whole ? 4 : 2);

    [[nodiscard]] static __device__ int head_of_lane() { return lane_of_thread() / Span; }
    // The sum over the lanes of a head.
    [[nodiscard]] static __device__ float sum(float number) {
#pragma unroll
        for (int distance = Span / 2; distance > 0; distance /= 2) {
            number += __shfl_xor_sync(all_lanes, number, distance);
        }
        return number;
    }
};

__device__ inline float4 load_four(const float* from) { return *reinterpret_cast<const float4*>(from); }
__device__ inline float4 load_four(const bfloat16* from) {
    const uint2 bits = *reinterpret_cast<const uint2*>(from);
    return make_float4(__uint_as_float(bits.x << 16), __uint_as_float(bits.x & 0xFFFF0000U),
                       __uint_as_float(bits.y << 16), __uint_as_float(bits.y & 0xFFFF0000U));
}
__device__ inline void save_four(float4 four, float* to) { *reinterpret_cast<float4*>(to) = four; }
__device__ inline void save_four(float4 four, bfloat16* to) {
    bfloat16 narrow[4];
    store(four.x, narrow[0]);
    store(four.y, narrow[1]);
    store(four.z, narrow[2]);
    store(four.w, narrow[3]);
    *reinterpret_cast<uint2*>(to) = uint2{narrow[0].bits | static_cast<unsigned>(narrow[1].bits) << 16,
                                          narrow[2].bits | static_cast<unsigned>(narrow[3].bits) << 16};
}

// The channels of a lane. Those beyond the last channel are 0.
template <class S>
struct Channels {
    static constexpr int count = 4 * S::Width;
    float of[count];

    __device__ void clear() {
#pragma unroll
        for (int k = 0; k < count; ++k) {
            of[k] = 0.0f;
        }
    }
    // The first channel of group k.
    [[nodiscard]] static __device__ int first_of(int k) { return 4 * (lane_of_thread() % S::Span + k * S::Span); }
    template <class T>
    __device__ void load(const T* row, std::int64_t channels) {
#pragma unroll
        for (int k = 0; k < S::Width; ++k) {
            const int first = first_of(k);
            if constexpr (S::Whole) {
                float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                if (first < channels) {
                    four = load_four(row + first);
                }
                of[4 * k] = four.x;
                of[4 * k + 1] = four.y;
                of[4 * k + 2] = four.z;
                of[4 * k + 3] = four.w;
            } else {
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    of[4 * k + c] = first + c < channels ? to_float(row[first + c]) : 0.0f;
                }
            }
        }
    }
    template <class T>
    __device__ void save(T* row, std::int64_t channels) const {
#pragma unroll
        for (int k = 0; k < S::Width; ++k) {
            const int first = first_of(k);
            if constexpr (S::Whole) {
                if (first < channels) {
                    save_four(make_float4(of[4 * k], of[4 * k + 1], of[4 * k + 2], of[4 * k + 3]), row + first);
                }
            } else {
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    if (first + c < channels) {
                        store(of[4 * k + c], row[first + c]);
                    }
                }
            }
        }
    }
};

// What a warp works on: a place among the destinations, sources or their groups, and some heads, or a tile of one
// head's channels. A lane whose head does not exist has no channels.
template <class S>
struct Task {
    std::int64_t place;
    std::int64_t head;   // of the lane
    std::int64_t first;  // channel
    std::int64_t channels;

    template <class T>
    __device__ Task(const Gatv2Arrays<T>& layer, std::int64_t number, std::int64_t tiles) {
        const std::int64_t blocks = (layer.heads + S::heads - 1) / S::heads;
        first = number % tiles * S::most;
        head = number / tiles % blocks * S::heads + S::head_of_lane();
        place = number / tiles / blocks;
        channels = head < layer.heads ? layer.channels - first : 0;
        head = head < layer.heads ? head : layer.heads - 1;
    }
    [[nodiscard]] __device__ bool leads() const { return channels > 0 && lane_of_thread() % S::Span == 0; }
    template <class T>
    [[nodiscard]] static std::int64_t count(const Gatv2Arrays<T>& layer, std::int64_t places, std::int64_t tiles) {
        return places * ((layer.heads + S::heads - 1) / S::heads) * tiles;
    }
};

// Whether an edge's weight of a head is dropped. As on the CPU, this is decided by number `at` of the SplitMix64
// generator, which starts at a mix of the seed.
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

// Whether rows of these arrays can be read four channels at a time.
template <class... T>
bool holds_fours(std::int64_t channels, const T*... arrays) {
    return channels % 4 == 0 && (... && (reinterpret_cast<std::uintptr_t>(arrays) % (4 * sizeof(T)) == 0));
}

// Calls use(shape, tiles) with the smallest shape that has room for the channels of a head, or with the largest,
// and the number of tiles.
template <class Use>
void with_shape(std::int64_t channels, bool fours, const Use& use) {
    const auto with = [&](auto shape) { use(shape, (channels + shape.most - 1) / shape.most); };
    if (!fours) {
        channels <= 128 ? with(Shape<1, lanes, false>{}) : with(Shape<2, lanes, false>{});
    } else if (channels <= 32) {
        with(Shape<1, 8, true>{});
    } else if (channels <= 64) {
        with(Shape<1, 16, true>{});
    } else if (channels <= 128) {
        with(Shape<1, lanes, true>{});
    } else if (channels <= 256) {
        with(Shape<2, lanes, true>{});
    } else if (channels <= 384) {
        with(Shape<3, lanes, true>{});
    } else {
        with(Shape<4, lanes, true>{});
    }
}

// On the host: checks the lengths of the layer. Throws Error as pyfast::gatv2 does.
template <class T>
Gatv2Arrays<T> gatv2_arrays(const Gatv2Layer<T>& layer, const Gatv2Options& options);
void check_gatv2_size(const char* name, std::size_t found, std::size_t expected);
// Checks the graph before it is used.
void check_gatv2_graph(const Gatv2Edges& edges, const Queue& queue);

}  // namespace pyfast::cuda
