// gatv2 on a GPU: graph attention of Brody et al. 2022, forward and backward, nothing of edges x heads x channels.
#pragma once

#include <cstddef>
#include <span>

#include "pyfast/api.hpp"
#include "pyfast/cuda/device.hpp"
#include "pyfast/gatv2.hpp"

namespace pyfast::cuda {

// Channels of a head: they lie in the registers of a warp.
inline constexpr std::int64_t gatv2_most_channels = 1024;

// pyfast::gatv2 for float and bfloat16, with the same layer and options, all spans of device memory (`threads` has
// no meaning). What dropout leaves out is the CPU's choice, bit for bit; sums are in float, within 1e-5 of the
// CPU's relatively to the largest of their terms.
//
// A warp takes a destination and a head. It reads each source once: the softmax runs along with the sum, which is
// scaled down whenever a larger score comes. Needs no workspace. Deterministic: each sum is one warp's.
// Throws Error as pyfast::gatv2 does, and above gatv2_most_channels. Faults: offsets, sources.
template <class T>
PYFAST_API void gatv2(const Gatv2Layer<T>& layer, const Gatv2Options& options, std::span<T> y,
                      std::span<float> attention, const Queue& queue);

// Bytes: 4 * edges * heads, an eighth of x_dst in float for att, and for x_src 16 for each edge and source.
template <class T>
PYFAST_API std::size_t gatv2_backward_workspace(const Gatv2Layer<T>& layer, const Gatv2Options& options,
                                                const Gatv2Gradients<T>& gradients);

// The gradients of pyfast::gatv2_backward. By destination for x_dst and att; by source, once the edges have been
// sorted, for x_src. No more than 2^31 - 1 edges. Sorting costs the square of a source's edges.
template <class T>
PYFAST_API void gatv2_backward(const Gatv2Layer<T>& layer, const Gatv2Options& options,
                               std::span<const float> attention, std::span<const T> grad,
                               const Gatv2Gradients<T>& gradients, const Queue& queue);

}  // namespace pyfast::cuda
