// gatv2: graph attention of Brody et al. 2022 over CSR, forward and backward; edge softmax and aggregation fused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "pyfast/api.hpp"
#include "pyfast/bfloat16.hpp"

namespace pyfast {

// For each of N_dst destinations its sources, by number: indices[indptr[i] .. indptr[i + 1]). An edge may occur
// twice. Exactly one of the two spans of indices is used.
struct Gatv2Graph {
    std::span<const std::int64_t> indptr;
    std::span<const std::int32_t> indices32;
    std::span<const std::int64_t> indices64;
};

struct Gatv2Options {
    double negative_slope = 0.2;
    // Each destination gets one edge from the source of its own number, where there is such a source, in place of
    // those that it has.
    bool self_loops = false;
    double dropout = 0.0;                // probability to drop an edge's weight of one head, in [0, 1)
    std::uint64_t seed = 0;              // what is dropped is a function of (seed, edge, head)
    bool masked = false;                 // drop where `mask` is 0 instead
    std::span<const std::uint8_t> mask;  // [edges, heads]
    int threads = 1;
};

// Sums are kept in float, for double in double.
template <class T>
using Gatv2Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;

// The layer: x_src [N_src, heads, channels], x_dst [N_dst, heads, channels], att [heads, channels], row by row.
template <class T>
struct Gatv2Layer {
    Gatv2Graph graph;
    std::span<const T> x_src;
    std::span<const T> x_dst;
    std::span<const T> att;
    std::int64_t heads = 0;
    std::int64_t channels = 0;
};

// Rows of `attention` and `mask`: the edges of the graph in its order, then with self_loops N_dst more, loop i at
// E + i.
inline std::size_t gatv2_edges(const Gatv2Graph& graph, bool self_loops) {
    const std::size_t destinations = graph.indptr.empty() ? 0 : graph.indptr.size() - 1;
    return graph.indices32.size() + graph.indices64.size() + (self_loops ? destinations : 0);
}

// For each head, destination i and its edges ij:
//     e_ij = att . LeakyReLU(x_src_j + x_dst_i)
//     a_ij = exp(e_ij) / sum_k exp(e_ik)
//     y_i  = sum_j d_ij a_ij x_src_j
// where d_ij = 1 / (1 - dropout), or 0 where dropped. Without edges y_i = 0.
// y: [N_dst, heads, channels]. attention: [edges, heads], a_ij, negated where it is dropped, for gatv2_backward;
// 0 for an edge that a self-loop replaces, and for the loop of a destination that has none.
//
// T is float, double or bfloat16; scores are subtracted from their largest before exp, which is right to 2 units
// in the last place of double. O(edges * heads * channels) time; beyond its results it keeps what 32 destinations
// need, per thread. NaN and infinities go where the equations take them. Thread-safe; bitwise the same for any
// number of threads and on any x86-64. Throws Error on malformed input.
template <class T>
PYFAST_API void gatv2(const Gatv2Layer<T>& layer, const Gatv2Options& options, std::span<T> y,
                      std::span<Gatv2Sum<T>> attention);

// Of the sum of y * grad, by x_src, x_dst and att; one that is left empty is not computed.
template <class T>
struct Gatv2Gradients {
    std::span<T> x_src;
    std::span<T> x_dst;
    std::span<T> att;
};

// The gradients, from the `attention` that gatv2 gave with the same layer and options (of which seed and mask are
// not read again: attention has them). Memory: edges * (heads sums + 16 bytes), and 1/32 of x_dst for att.
template <class T>
PYFAST_API void gatv2_backward(const Gatv2Layer<T>& layer, const Gatv2Options& options,
                               std::span<const Gatv2Sum<T>> attention, std::span<const T> grad,
                               const Gatv2Gradients<T>& gradients);

}  // namespace pyfast
