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

// One warp for each destination and head.
template <class T, int Width>
__global__ void __launch_bounds__(threads) forward_kernel(Gatv2Arrays<T> layer, Gatv2Dropout dropped, float keep,
                                                          T* y, float* attention, const std::int32_t* status) {
    if (*status != 0) {
        return;
    }
    for (std::int64_t task = warp_of_grid(); task < layer.edges.destinations * layer.heads;
         task += warps_of_grid()) {
        const std::int64_t i = task / layer.heads;
        const std::int64_t head = task % layer.heads;
        Channels<Width> att;
        Channels<Width> centre;
        Channels<Width> sum;
        att.load(layer.att + layer.row(0, head), layer.channels);
        centre.load(layer.x_dst + layer.row(i, head), layer.channels);
        sum.clear();
        float most = -HUGE_VALF;
        float total = 0.0f;
        bool any = false;
        layer.edges.each(i, [&](std::int64_t edge, std::int64_t node) {
            const std::int64_t at = edge * layer.heads + head;
            Channels<Width> feature;
            feature.load(layer.x_src + layer.row(node, head), layer.channels);
            float score = 0.0f;
#pragma unroll
            for (int k = 0; k < Width; ++k) {
                const float met = feature.of[k] + centre.of[k];
                score += att.of[k] * (met > 0.0f ? met : layer.slope * met);
            }
            score = warp_sum(score);
            if (lane_of_thread() == 0) {
                attention[at] = score;
            }
            const float before = most;
            most = most < score ? score : most;  // NaN never replaces it
            const float scale = before == most ? 1.0f : expf(before - most);
            const float part = score == -HUGE_VALF ? 0.0f : expf(score - most);
            const float weight = dropped(at) ? 0.0f : part * keep;
            total = total * scale + part;
            any = true;
#pragma unroll
            for (int k = 0; k < Width; ++k) {
                sum.of[k] = sum.of[k] * scale + weight * feature.of[k];
            }
        });
#pragma unroll
        for (int k = 0; k < Width; ++k) {
            sum.of[k] = any ? sum.of[k] / total : 0.0f;
        }
        sum.save(y + layer.row(i, head), layer.channels);
        __syncwarp();
        layer.edges.each_of_lane(i, [&](std::int64_t edge, bool absent) {
            const std::int64_t at = edge * layer.heads + head;
            const float share = absent ? 0.0f : expf(attention[at] - most) / total;
            attention[at] = !absent && dropped(at) ? -share : share;
        });
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
    if (layer.heads < 1 || layer.channels < 1 || layer.channels > gatv2_most_channels ||
        layer.channels > std::numeric_limits<std::int32_t>::max() / layer.heads) {
        throw Error("att: expected at least one head, and 1 to " + std::to_string(gatv2_most_channels) +
                    " channels on a GPU, got " + std::to_string(layer.heads) + " x " +
                    std::to_string(layer.channels));
    }
    const Gatv2Graph& graph = layer.graph;
    if (!graph.indices32.empty() && !graph.indices64.empty()) {
        throw Error("indices: given twice");
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
    const auto tasks = static_cast<std::size_t>(arrays.edges.destinations * arrays.heads);
    check_gatv2_graph(arrays.edges, queue);
    with_width(layer.channels, [&](auto width) {
        GPU_LAUNCH(GPU_KERNEL(forward_kernel<T, decltype(width)::value>), blocks_for(tasks, warps), threads, 0,
                   stream_of(queue), arrays, dropped, keep, y.data(), attention.data(), queue.status);
    });
    check_launch("gatv2");
}
template void gatv2(const Gatv2Layer<float>&, const Gatv2Options&, std::span<float>, std::span<float>,
                    const Queue&);
template void gatv2(const Gatv2Layer<bfloat16>&, const Gatv2Options&, std::span<bfloat16>, std::span<float>,
                    const Queue&);

}  // namespace pyfast::cuda
