#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "gatv2.cuh"
#include "pools.cuh"
#include "pyfast/cuda/gatv2.hpp"
#include "pyfast/error.hpp"

namespace pyfast::cuda {

namespace {

constexpr int threads = 128;
constexpr int warps = threads / lanes;

__global__ void check_graph_kernel(Gatv2Edges edges, std::int32_t* status) {
    const RaggedArrays<std::int64_t> rows{edges.indptr, nullptr, edges.destinations, edges.stored};
    for (std::int64_t i = thread_of_grid(); i < edges.destinations || i < edges.stored; i += threads_of_grid()) {
        if (i < edges.destinations && !offsets_hold(rows, i)) {
            report(status, Fault::offsets);
        }
        if (i < edges.stored && (edges.source(i) < 0 || edges.source(i) >= edges.sources)) {
            report(status, Fault::sources);
        }
    }
}

// The running softmax of a destination and head, over the edges so far.
struct Softmax {
    float most = -HUGE_VALF;
    float total = 0.0f;

    // Adds scores to the softmax, and replaces each by its part of `total`. Returns the factor by which earlier
    // sums must be multiplied.
    template <int Together>
    __device__ float add(float (&scores)[Together], int count) {
        const float before = most;
#pragma unroll
        for (int k = 0; k < Together; ++k) {
            most = k < count && most < scores[k] ? scores[k] : most;  // NaN never replaces it
        }
        const float scale = before == most ? 1.0f : expf(before - most);
        total *= scale;
#pragma unroll
        for (int k = 0; k < Together; ++k) {
            scores[k] = k >= count || scores[k] == -HUGE_VALF ? 0.0f : expf(scores[k] - most);
            total += scores[k];
        }
        return scale;
    }
};

// One warp for each destination and some heads. It reads each source once. If there are several tiles of channels,
// it computes only the attention.
template <class T, class S, bool Tiled>
__global__ void __launch_bounds__(threads, S::blocks)
    forward_kernel(Gatv2Arrays<T> layer, std::int64_t tasks, Gatv2Dropout dropped, float keep, T* y,
                   float* attention, const std::int32_t* status) {
    if (*status != 0) {
        return;
    }
    for (std::int64_t number = warp_of_grid(); number < tasks; number += warps_of_grid()) {
        const Task<S> task(layer, number, 1);
        Channels<S> centre;
        Channels<S> sum;
        if constexpr (!Tiled) {
            centre.load(layer.x_dst + layer.row(task.place, task.head), task.channels);
            sum.clear();
        }
        Softmax softmax;
        bool any = false;
        layer.edges.template each<S::together>(task.place, [&](const Batch<S::together>& batch) {
            float scores[S::together] = {};
            Channels<S> features[S::together];
            for (std::int64_t first = 0; first < (Tiled ? layer.channels : 1); first += S::most) {
                if constexpr (Tiled) {
                    centre.load(layer.x_dst + layer.row(task.place, task.head) + first, task.channels - first);
                }
#pragma unroll
                for (int k = 0; k < S::together; ++k) {
                    features[k].load(layer.x_src + layer.row(batch.node[k], task.head) + first,
                                     k < batch.count ? task.channels - first : 0);
                }
                Channels<S> att;  // read again each time, because it has no room in the registers
                att.load(layer.att + layer.row(0, task.head) + first, task.channels - first);
#pragma unroll
                for (int k = 0; k < S::together; ++k) {
#pragma unroll
                    for (int c = 0; c < Channels<S>::count; ++c) {
                        const float met = features[k].of[c] + centre.of[c];
                        scores[k] += att.of[c] * (met > 0.0f ? met : layer.slope * met);
                    }
                }
            }
#pragma unroll
            for (int k = 0; k < S::together; ++k) {
                scores[k] = S::sum(scores[k]);
                if (k < batch.count && task.leads()) {
                    attention[layer.at(batch.edge[k], task.head)] = scores[k];
                }
            }
            const float scale = softmax.add(scores, batch.count);
            any = true;
            if constexpr (!Tiled) {
#pragma unroll
                for (int c = 0; c < Channels<S>::count; ++c) {
                    sum.of[c] *= scale;
                }
#pragma unroll
                for (int k = 0; k < S::together; ++k) {
                    const float weight = dropped(layer.at(batch.edge[k], task.head)) ? 0.0f : scores[k] * keep;
#pragma unroll
                    for (int c = 0; c < Channels<S>::count; ++c) {
                        sum.of[c] += weight * features[k].of[c];
                    }
                }
            }
        });
        if constexpr (!Tiled) {
#pragma unroll
            for (int c = 0; c < Channels<S>::count; ++c) {
                sum.of[c] = any ? sum.of[c] / softmax.total : 0.0f;
            }
            sum.save(y + layer.row(task.place, task.head), task.channels);
        }
        __syncwarp();
        // Each lane takes a head of the warp, and the lanes of a head share its edges.
        const int leader = lane_of_thread() % S::heads * S::Span;
        const float most = __shfl_sync(all_lanes, softmax.most, leader);
        const float total = __shfl_sync(all_lanes, softmax.total, leader);
        const std::int64_t head = __shfl_sync(all_lanes, task.channels > 0 ? task.head : -1, leader);
        layer.edges.template each_of_lane<S::Span>(task.place, [&](std::int64_t edge, bool absent) {
            if (head >= 0) {
                const std::int64_t at = edge * layer.heads + head;
                const float share = absent ? 0.0f : expf(attention[at] - most) / total;
                attention[at] = !absent && dropped(at) ? -share : share;
            }
        });
    }
}

// One warp for each destination, head and tile: sums the sources, weighted by the attention, which is already
// known.
template <class T, class S>
__global__ void __launch_bounds__(threads, S::blocks)
    tile_kernel(Gatv2Arrays<T> layer, std::int64_t tasks, std::int64_t tiles, float keep, T* y,
                const float* attention, const std::int32_t* status) {
    if (*status != 0) {
        return;
    }
    for (std::int64_t number = warp_of_grid(); number < tasks; number += warps_of_grid()) {
        const Task<S> task(layer, number, tiles);
        Channels<S> sum;
        sum.clear();
        layer.edges.template each<S::together>(task.place, [&](const Batch<S::together>& batch) {
            Channels<S> features[S::together];
            float weights[S::together];
#pragma unroll
            for (int k = 0; k < S::together; ++k) {
                const float share = attention[layer.at(batch.edge[k], task.head)];
                weights[k] = k >= batch.count || signbit(share) ? 0.0f : share * keep;
                features[k].load(layer.x_src + layer.row(batch.node[k], task.head) + task.first,
                                 k < batch.count ? task.channels : 0);
            }
#pragma unroll
            for (int k = 0; k < S::together; ++k) {
#pragma unroll
                for (int c = 0; c < Channels<S>::count; ++c) {
                    sum.of[c] += weights[k] * features[k].of[c];
                }
            }
        });
        sum.save(y + layer.row(task.place, task.head) + task.first, task.channels);
    }
}

}  // namespace

void check_gatv2_size(const char* name, std::size_t found, std::size_t expected) {
    if (found != expected) {
        throw Error(std::string(name) + ": expected " + std::to_string(expected) + " numbers, got " +
                    std::to_string(found));
    }
}

template <class T>
Gatv2Arrays<T> gatv2_arrays(const Gatv2Layer<T>& layer, const Gatv2Options& options) {
    if (!std::isfinite(options.negative_slope)) {
        throw Error("negative_slope: must be finite");
    }
    if (!(options.dropout >= 0.0 && options.dropout < 1.0)) {
        throw Error("dropout: must lie in [0, 1)");
    }
    if (layer.heads < 1 || layer.channels < 1 ||
        layer.channels > std::numeric_limits<std::int32_t>::max() / layer.heads) {
        throw Error("att: expected at least one head and one channel, got " + std::to_string(layer.heads) + " x " +
                    std::to_string(layer.channels));
    }
    const Gatv2Graph& graph = layer.graph;
    if (!graph.indices32.empty() && !graph.indices64.empty()) {
        throw Error("indices: expected 32-bit or 64-bit numbers, not both");
    }
    if (graph.indptr.empty()) {
        throw Error("indptr: must hold one more number than there are destinations");
    }
    const auto row = static_cast<std::size_t>(layer.heads * layer.channels);
    const std::size_t stored = graph.indices32.size() + graph.indices64.size();
    const std::size_t sources = layer.x_src.size() / row;
    const std::size_t destinations = graph.indptr.size() - 1;
    check_gatv2_size("att", layer.att.size(), row);
    check_gatv2_size("x_src", layer.x_src.size(), sources * row);
    check_gatv2_size("x_dst", layer.x_dst.size(), destinations * row);
    constexpr std::size_t most = std::numeric_limits<std::int32_t>::max() - std::size_t{lanes};
    if (std::max(sources, gatv2_edges(graph, true)) > most) {
        throw Error("indices: a GPU supports at most " + std::to_string(most) + " sources and edges");
    }
    if (destinations == 0 && stored > 0) {
        throw Error("indptr: there are edges, but no destinations");
    }
    return {{graph.indptr.data(), graph.indices32.data(),
             graph.indices64.empty() ? nullptr : graph.indices64.data(), static_cast<std::int64_t>(stored),
             static_cast<std::int64_t>(sources), static_cast<std::int64_t>(destinations), options.self_loops},
            layer.x_src.data(),
            layer.x_dst.data(),
            layer.att.data(),
            layer.heads,
            layer.channels,
            static_cast<float>(options.negative_slope)};
}
template Gatv2Arrays<float> gatv2_arrays(const Gatv2Layer<float>&, const Gatv2Options&);
template Gatv2Arrays<bfloat16> gatv2_arrays(const Gatv2Layer<bfloat16>&, const Gatv2Options&);

void check_gatv2_graph(const Gatv2Edges& edges, const Queue& queue) {
    const auto items =
        static_cast<std::size_t>(edges.stored < edges.destinations ? edges.destinations : edges.stored);
    GPU_LAUNCH(check_graph_kernel, blocks_for(items, threads), threads, 0, stream_of(queue), edges, queue.status);
}

template <class T>
void gatv2(const Gatv2Layer<T>& layer, const Gatv2Options& options, std::span<T> y, std::span<float> attention,
           const Queue& queue) {
    const Gatv2Arrays<T> arrays = gatv2_arrays(layer, options);
    check_gatv2_size("y", y.size(), layer.x_dst.size());
    check_gatv2_size("attention", attention.size(),
                     gatv2_edges(layer.graph, options.self_loops) * static_cast<std::size_t>(layer.heads));
    if (options.masked) {
        check_gatv2_size("mask", options.mask.size(), attention.size());
    }
    check_queue(queue, 0);
    if (arrays.edges.destinations == 0) {
        return;
    }
    const Gatv2Dropout dropped{Gatv2Dropout::mix(options.seed + Gatv2Dropout::step), options.dropout,
                               options.masked ? options.mask.data() : nullptr};
    const auto keep = static_cast<float>(1.0 / (1.0 - options.dropout));
    check_gatv2_graph(arrays.edges, queue);
    const bool fours = holds_fours(layer.channels, arrays.x_src, arrays.x_dst, arrays.att, y.data());
    with_shape(layer.channels, fours, [&](auto shape, std::int64_t tiles) {
        using S = decltype(shape);
        const std::int64_t tasks = Task<S>::count(arrays, arrays.edges.destinations, 1);
        const unsigned grid = blocks_for(static_cast<std::size_t>(tasks), warps);
        if (tiles == 1) {
            GPU_LAUNCH(GPU_KERNEL(forward_kernel<T, S, false>), grid, threads, 0, stream_of(queue), arrays, tasks,
                       dropped, keep, y.data(), attention.data(), queue.status);
            return;
        }
        if constexpr (S::largest) {
            GPU_LAUNCH(GPU_KERNEL(forward_kernel<T, S, true>), grid, threads, 0, stream_of(queue), arrays, tasks,
                       dropped, keep, y.data(), attention.data(), queue.status);
            GPU_LAUNCH(GPU_KERNEL(tile_kernel<T, S>), blocks_for(static_cast<std::size_t>(tasks * tiles), warps),
                       threads, 0, stream_of(queue), arrays, tasks * tiles, tiles, keep, y.data(),
                       attention.data(), queue.status);
        }
    });
    check_launch("gatv2");
}
template void gatv2(const Gatv2Layer<float>&, const Gatv2Options&, std::span<float>, std::span<float>,
                    const Queue&);
template void gatv2(const Gatv2Layer<bfloat16>&, const Gatv2Options&, std::span<bfloat16>, std::span<float>,
                    const Queue&);

}  // namespace pyfast::cuda
