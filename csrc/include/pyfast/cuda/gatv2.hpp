// gatv2 on a GPU: graph attention of Brody et al. 2022, forward and backward, without arrays of edges x heads x
// channels.
#pragma once

#include <cstddef>
#include <span>

#include "pyfast/api.hpp"
#include "pyfast/cuda/device.hpp"
#include "pyfast/gatv2.hpp"

namespace pyfast::cuda {

// pyfast::gatv2 for float and bfloat16, with the same layer and options (`threads` is not used). All spans are
// device memory. Dropout drops the same weights as the CPU, bit for bit. Sums are float; their error is within
// 1e-5 of the largest term.
//
// A warp handles a destination and a head, or several heads of few channels. It reads each source once: the
// softmax is computed along with the sum, which is scaled down when a larger score comes. With more than 512
// channels, it computes only the attention; other warps then compute the sums, of 512 channels each. Needs no
// workspace. Deterministic: one warp computes each sum. Throws Error as pyfast::gatv2 does. Faults: offsets,
// sources.
template <class T>
PYFAST_API void gatv2(const Gatv2Layer<T>& layer, const Gatv2Options& options, std::span<T> y,
                      std::span<float> attention, const Queue& queue);

// Bytes: 4 * edges * heads; for the gradient of att, also an eighth of x_dst in float; for that of x_src, also 16
// for each edge and source.
template <class T>
PYFAST_API std::size_t gatv2_backward_workspace(const Gatv2Layer<T>& layer, const Gatv2Options& options,
                                                const Gatv2Gradients<T>& gradients);

// The gradients of pyfast::gatv2_backward. The gradients of x_dst and att are summed by destination. That of x_src
// is summed by source, after the edges are sorted. At most 2^31 - 1 edges. The time of sorting grows with the
// square of a source's edges.
template <class T>
PYFAST_API void gatv2_backward(const Gatv2Layer<T>& layer, const Gatv2Options& options,
                               std::span<const float> attention, std::span<const T> grad,
                               const Gatv2Gradients<T>& gradients, const Queue& queue);

}  // namespace pyfast::cuda
