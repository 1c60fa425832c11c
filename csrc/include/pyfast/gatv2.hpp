// gatv2: graph attention of Brody et al. 2022 over CSR, forward and backward. Edge softmax and aggregation are
// fused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "pyfast/api.hpp"
#include "pyfast/bfloat16.hpp"

namespace pyfast {

// The sources of each of N_dst destinations: indices[indptr[i] .. indptr[i + 1]). An edge may occur twice. Exactly
// one of the two spans of indices is used.
struct Gatv2Graph {
    std::span<const std::int64_t> indptr;
    std::span<const std::int32_t> indices32;
    std::span<const std::int64_t> indices64;
};

struct Gatv2Options {
    double negative_slope = 0.2;
    // Each destination gets one edge from the source with the same number, if that source exists. It replaces such
    // edges of the graph.
    bool self_loops = false;
    double dropout = 0.0;                // the probability that an edge's weight of one head is dropped, in [0, 1)
    std::uint64_t seed = 0;              // the dropped weights depend only on (seed, edge, head)
    bool masked = false;                 // if true, weights are dropped where `mask` is 0
    std::span<const std::uint8_t> mask;  // [edges, heads]
    int threads = 1;
};

// Sums are float, or double if T is double.
template <class T>
using Gatv2Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;

// The layer: x_src [N_src, heads, channels], x_dst [N_dst, heads, channels], att [heads, channels], row-major.
template <class T>
struct Gatv2Layer {
    Gatv2Graph graph;
    std::span<const T> x_src;
    std::span<const T> x_dst;
    std::span<const T> att;
    std::int64_t heads = 0;
    std::int64_t channels = 0;
};

// The number of rows of `attention` and `mask`: the E edges of the graph in order, and with self_loops N_dst more.
// Row E + i is the loop of destination i.
inline std::size_t gatv2_edges(const Gatv2Graph& graph, bool self_loops) {
    const std::size_t destinations = graph.indptr.empty() ? 0 : graph.indptr.size() - 1;
    return graph.indices32.size() + graph.indices64.size() + (self_loops ? destinations : 0);
}

// For each head, destination i and its edges ij:
//     e_ij = att . LeakyReLU(x_src_j + x_dst_i)
//     a_ij = exp(e_ij) / sum_k exp(e_ik)
//     y_i  = sum_j d_ij a_ij x_src_j
// where d_ij = 1 / (1 - dropout), or 0 if the weight is dropped. Without edges, y_i = 0. y is [N_dst, heads,
// channels]. `attention` is [edges, heads] and holds a_ij for gatv2_backward: negated if dropped, and 0 for an
// edge that a self-loop replaces and for a loop that does not exist.
//
// T is float, double or bfloat16. The largest score is subtracted before exp, and exp has an error of at most 2
// units in the last place of double. Time: O(edges * heads * channels). Memory: the results, and for each thread
// the data of 32 destinations. NaN and infinities follow the equations. Thread-safe. The result is bitwise the
// same for any number of threads, on any x86-64. Throws Error for malformed input.
template <class T>
PYFAST_API void gatv2(const Gatv2Layer<T>& layer, const Gatv2Options& options, std::span<T> y,
                      std::span<Gatv2Sum<T>> attention);

// The gradients of sum(y * grad) by x_src, x_dst and att. A gradient whose span is empty is not computed.
template <class T>
struct Gatv2Gradients {
    std::span<T> x_src;
    std::span<T> x_dst;
    std::span<T> att;
};

// The gradients, from the `attention` that gatv2 returned for the same layer and options. Seed and mask are not
// read again, because attention contains them. Memory: for each edge, one sum for each head and 16 bytes; for att,
// 1/32 of x_dst.
template <class T>
PYFAST_API void gatv2_backward(const Gatv2Layer<T>& layer, const Gatv2Options& options,
                               std::span<const Gatv2Sum<T>> attention, std::span<const T> grad,
                               const Gatv2Gradients<T>& gradients);

}  // namespace pyfast
