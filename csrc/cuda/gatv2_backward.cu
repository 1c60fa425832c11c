#include <algorithm>

#include "gatv2.cuh"
#include "pyfast/cuda/gatv2.hpp"
#include "pyfast/error.hpp"
#include "scan.cuh"

namespace pyfast::cuda {

namespace {

constexpr int threads = 128;
constexpr int warps = threads / lanes;
constexpr std::int64_t group = 8;  // destinations of a warp, which sums their part of att's gradient
constexpr int rows_at_once = 8;    // parts of att's gradient that a block adds up together
constexpr int slices = 16;         // of these parts, each for a block of its own

// An edge by source: its number and its destination.
struct Edge {
    std::int32_t id;
    std::int32_t node;
};

// The graph by source: source j has the edges edges[begin[j] .. begin[j + 1]), sorted by number.
struct BySource {
    std::int64_t* begin;  // [sources + 1]
    std::int64_t* next;   // [sources] the place of the next edge
    std::int64_t* scan;
    Edge* found;  // not sorted yet
    Edge* edges;
};

struct Memory {
    float* scores;   // [edges, heads] the gradients of the arguments of the softmax
    float* att;      // [groups of destinations, heads, channels]; null: not computed
    double* slices;  // [slices, heads, channels] the sums of the slices
    BySource by_source;
};

// What the backward pass reads besides the layer.
template <class T>
struct Flow {
    const float* attention;
    const T* grad;
    float keep;
};

// One warp for each destination and some heads: computes the gradients of its scores from grad . x_src.
template <class T, class S>
__global__ void __launch_bounds__(threads, S::blocks)
    score_kernel(Gatv2Arrays<T> layer, std::int64_t tasks, Flow<T> flow, float* scores,
                 const std::int32_t* status) {
    if (*status != 0) {
        return;
    }
    for (std::int64_t number = warp_of_grid(); number < tasks; number += warps_of_grid()) {
        const Task<S> task(layer, number, 1);
        const bool tiled = layer.channels > S::most;
        Channels<S> grad;
        grad.load(flow.grad + layer.row(task.place, task.head), task.channels);
        double mean = 0.0;
        layer.edges.template each<S::together>(task.place, [&](const Batch<S::together>& batch) {
            float gradients[S::together] = {};
            float shares[S::together];
#pragma unroll
            for (int k = 0; k < S::together; ++k) {
                shares[k] = flow.attention[layer.at(batch.edge[k], task.head)];
            }
            for (std::int64_t first = 0; first < layer.channels; first += S::most) {
                if (tiled) {
                    grad.load(flow.grad + layer.row(task.place, task.head) + first, task.channels - first);
                }
                Channels<S> features[S::together];
#pragma unroll
                for (int k = 0; k < S::together; ++k) {
                    features[k].load(layer.x_src + layer.row(batch.node[k], task.head) + first,
                                     k < batch.count ? task.channels - first : 0);
                }
#pragma unroll
                for (int k = 0; k < S::together; ++k) {
#pragma unroll
                    for (int c = 0; c < Channels<S>::count; ++c) {
                        gradients[k] += grad.of[c] * features[k].of[c];
                    }
                }
            }
#pragma unroll
            for (int k = 0; k < S::together; ++k) {
                const float gradient = S::sum(gradients[k]) * (signbit(shares[k]) ? 0.0f : flow.keep);
                if (k < batch.count) {
                    mean += static_cast<double>(fabsf(shares[k])) * static_cast<double>(gradient);
                    if (task.leads()) {
                        scores[layer.at(batch.edge[k], task.head)] = gradient;
                    }
                }
            }
        });
        __syncwarp();
        // Each lane takes a head of the warp, and the lanes of a head share its edges.
        const int leader = lane_of_thread() % S::heads * S::Span;
        const auto subtracted = static_cast<float>(__shfl_sync(all_lanes, mean, leader));
        const std::int64_t head = __shfl_sync(all_lanes, task.channels > 0 ? task.head : -1, leader);
        layer.edges.template each_of_lane<S::Span>(task.place, [&](std::int64_t edge, bool absent) {
            if (head >= 0 && !absent) {
                const std::int64_t at = edge * layer.heads + head;
                scores[at] = fabsf(flow.attention[at]) * (scores[at] - subtracted);
            }
        });
        __syncwarp();
    }
}

// One warp for each `group` of destinations and some heads or a tile: computes the gradient of x_dst, unless it is
// null, and a part of att's gradient.
template <class T, class S>
__global__ void __launch_bounds__(threads, S::blocks)
    destination_kernel(Gatv2Arrays<T> layer, std::int64_t tasks, Memory memory, std::int64_t tiles,
                       T* of_destination, const std::int32_t* status) {
    if (*status != 0) {
        return;
    }
    for (std::int64_t number = warp_of_grid(); number < tasks; number += warps_of_grid()) {
        const Task<S> task(layer, number, tiles);
        Channels<S> att_sum;
        att_sum.clear();
        for (std::int64_t i = task.place * group; i < (task.place + 1) * group && i < layer.edges.destinations;
             ++i) {
            Channels<S> centre;
            Channels<S> sum;
            centre.load(layer.x_dst + layer.row(i, task.head) + task.first, task.channels);
            sum.clear();
            layer.edges.template each<S::together>(i, [&](const Batch<S::together>& batch) {
                float gradients[S::together];
                Channels<S> features[S::together];
#pragma unroll
                for (int k = 0; k < S::together; ++k) {
                    gradients[k] = k < batch.count ? memory.scores[layer.at(batch.edge[k], task.head)] : 0.0f;
                    features[k].load(layer.x_src + layer.row(batch.node[k], task.head) + task.first,
                                     k < batch.count ? task.channels : 0);
                }
#pragma unroll
                for (int k = 0; k < S::together; ++k) {
                    if (k < batch.count) {
#pragma unroll
                        for (int c = 0; c < Channels<S>::count; ++c) {
                            const float met = features[k].of[c] + centre.of[c];
                            const float sloped = gradients[k] * (met > 0.0f ? 1.0f : layer.slope);
                            sum.of[c] += sloped;
                            att_sum.of[c] += sloped * met;
                        }
                    }
                }
            });
            if (of_destination != nullptr) {
                Channels<S> att;
                att.load(layer.att + layer.row(0, task.head) + task.first, task.channels);
#pragma unroll
                for (int c = 0; c < Channels<S>::count; ++c) {
                    sum.of[c] *= att.of[c];
                }
                sum.save(of_destination + layer.row(i, task.head) + task.first, task.channels);
            }
        }
        if (memory.att != nullptr) {
            att_sum.save(memory.att + layer.row(task.place, task.head) + task.first, task.channels);
        }
    }
}

// One block for each `lanes` numbers of att's gradient and each slice of its parts, which it adds up in double, in
// a fixed order.
__global__ void slice_kernel(const float* parts, std::int64_t groups, std::int64_t numbers, double* slice_sums,
                             const std::int32_t* status) {
    if (*status != 0) {
        return;
    }
    GPU_SHARED(double, sums, rows_at_once* lanes);
    const std::int64_t number = static_cast<std::int64_t>(blockIdx.x) * lanes + lane_of_thread();
    const std::int64_t first = groups * blockIdx.y / slices;
    const std::int64_t last = groups * (blockIdx.y + 1) / slices;
    double sum = 0.0;
    for (std::int64_t g = first + warp_of_thread(); g < last && number < numbers; g += rows_at_once) {
        sum += static_cast<double>(parts[g * numbers + number]);
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (warp_of_thread() == 0 && number < numbers) {
        for (int row = 1; row < rows_at_once; ++row) {
            sum += sums[row * lanes + lane_of_thread()];
        }
        slice_sums[blockIdx.y * numbers + number] = sum;
    }
}

// One thread for each number of att's gradient: adds up the slices.
template <class T>
__global__ void att_kernel(const double* slice_sums, std::int64_t numbers, T* att, const std::int32_t* status) {
    if (*status != 0) {
        return;
    }
    for (std::int64_t number = thread_of_grid(); number < numbers; number += threads_of_grid()) {
        double sum = 0.0;
        for (int slice = 0; slice < slices; ++slice) {
            sum += slice_sums[slice * numbers + number];
        }
        store(static_cast<float>(sum), att[number]);
    }
}

// One thread for each source, which has no edges at first.
__global__ void clear_kernel(BySource by_source, std::int64_t sources, const std::int32_t* status) {
    if (*status != 0) {
        return;
    }
    for (std::int64_t j = thread_of_grid(); j <= sources; j += threads_of_grid()) {
        by_source.begin[j] = 0;
    }
}

// One warp for each destination: counts the edges of each source j in begin[j + 1].
__global__ void count_kernel(Gatv2Edges graph, BySource by_source, const std::int32_t* status) {
    if (*status != 0) {
        return;
    }
    for (std::int64_t i = warp_of_grid(); i < graph.destinations; i += warps_of_grid()) {
        graph.each_of_lane(i, [&](std::int64_t edge, bool absent) {
            const std::int64_t node = edge < graph.stored ? graph.source(edge) : i;
            if (!absent) {
                atomicAdd(reinterpret_cast<unsigned long long*>(by_source.begin + node + 1), 1ULL);
            }
        });
    }
}

__global__ void start_kernel(BySource by_source, std::int64_t sources, const std::int32_t* status) {
    if (*status != 0) {
        return;
    }
    for (std::int64_t j = thread_of_grid(); j < sources; j += threads_of_grid()) {
        by_source.next[j] = by_source.begin[j];
    }
}

// One warp for each destination: moves its edges to their sources, in any order.
__global__ void place_kernel(Gatv2Edges graph, BySource by_source, const std::int32_t* status) {
    if (*status != 0) {
        return;
    }
    for (std::int64_t i = warp_of_grid(); i < graph.destinations; i += warps_of_grid()) {
        graph.each_of_lane(i, [&](std::int64_t edge, bool absent) {
            const std::int64_t node = edge < graph.stored ? graph.source(edge) : i;
            if (!absent) {
                const unsigned long long place =
                    atomicAdd(reinterpret_cast<unsigned long long*>(by_source.next + node), 1ULL);
                by_source.found[place] = {static_cast<std::int32_t>(edge), static_cast<std::int32_t>(i)};
            }
        });
    }
}

// One thread for each edge: its place among the edges of its source is the number of edges before it.
__global__ void order_kernel(Gatv2Edges graph, BySource by_source, const std::int32_t* status) {
    if (*status != 0) {
        return;
    }
    const std::int64_t edges = by_source.begin[graph.sources];
    for (std::int64_t e = thread_of_grid(); e < edges; e += threads_of_grid()) {
        const Edge edge = by_source.found[e];
        const std::int64_t node = edge.id < graph.stored ? graph.source(edge.id) : edge.node;
        std::int64_t place = by_source.begin[node];
        for (std::int64_t other = by_source.begin[node]; other < by_source.begin[node + 1]; ++other) {
            place += by_source.found[other].id < edge.id ? 1 : 0;
        }
        by_source.edges[place] = edge;
    }
}

// One warp for each source and some heads or a tile.
template <class T, class S>
__global__ void __launch_bounds__(threads, S::blocks)
    source_kernel(Gatv2Arrays<T> layer, std::int64_t tasks, Flow<T> flow, Memory memory, std::int64_t tiles,
                  T* of_source, const std::int32_t* status) {
    if (*status != 0) {
        return;
    }
    const BySource& by_source = memory.by_source;
    constexpr int pairs = S::together / 2;  // two rows for each edge
    for (std::int64_t number = warp_of_grid(); number < tasks; number += warps_of_grid()) {
        const Task<S> task(layer, number, tiles);
        Channels<S> att;
        Channels<S> centre;
        Channels<S> sum;
        att.load(layer.att + layer.row(0, task.head) + task.first, task.channels);
        centre.load(layer.x_src + layer.row(task.place, task.head) + task.first, task.channels);
        sum.clear();
        const std::int64_t end = by_source.begin[task.place + 1];
        for (std::int64_t e = by_source.begin[task.place]; e < end; e += pairs) {
            float gradients[pairs];
            float weights[pairs];
            Channels<S> features[pairs];
            Channels<S> grads[pairs];
#pragma unroll
            for (int k = 0; k < pairs; ++k) {
                const Edge edge = by_source.edges[e + k < end ? e + k : e];
                const std::int64_t at = edge.id * layer.heads + task.head;
                const float share = flow.attention[at];
                gradients[k] = e + k < end ? memory.scores[at] : 0.0f;
                weights[k] = e + k < end ? fabsf(share) * (signbit(share) ? 0.0f : flow.keep) : 0.0f;
                const std::int64_t channels = e + k < end ? task.channels : 0;
                features[k].load(layer.x_dst + layer.row(edge.node, task.head) + task.first, channels);
                grads[k].load(flow.grad + layer.row(edge.node, task.head) + task.first, channels);
            }
#pragma unroll
            for (int k = 0; k < pairs; ++k) {
                if (e + k < end) {
#pragma unroll
                    for (int c = 0; c < Channels<S>::count; ++c) {
                        const float slope = features[k].of[c] + centre.of[c] > 0.0f ? 1.0f : layer.slope;
                        sum.of[c] += gradients[k] * (slope * att.of[c]);
                        sum.of[c] += weights[k] * grads[k].of[c];
                    }
                }
            }
        }
        sum.save(of_source + layer.row(task.place, task.head) + task.first, task.channels);
    }
}

std::size_t groups_of(const Gatv2Edges& edges) {
    return static_cast<std::size_t>((edges.destinations + group - 1) / group);
}

template <class T>
Memory lay_out(Arena& arena, const Gatv2Arrays<T>& layer, const Gatv2Gradients<T>& gradients) {
    const Gatv2Edges& graph = layer.edges;
    const auto edges = static_cast<std::size_t>(graph.stored + (graph.self_loops ? graph.destinations : 0));
    const auto heads = static_cast<std::size_t>(layer.heads);
    const bool of_source = !gradients.x_src.empty();
    const std::size_t sources = of_source ? static_cast<std::size_t>(graph.sources) + 1 : 0;
    const std::size_t parts =
        gradients.att.empty() ? 0 : groups_of(graph) * heads * static_cast<std::size_t>(layer.channels);
    float* const scores = arena.take<float>(edges * heads);
    float* const att = arena.take<float>(parts);
    double* const sums =
        arena.take<double>(gradients.att.empty() ? 0 : slices * heads * static_cast<std::size_t>(layer.channels));
    return {scores,
            gradients.att.empty() ? nullptr : att,
            sums,
            {arena.take<std::int64_t>(sources), arena.take<std::int64_t>(sources),
             arena.take<std::int64_t>(scan_memory(sources)), arena.take<Edge>(of_source ? edges : 0),
             arena.take<Edge>(of_source ? edges : 0)}};
}

void sort_by_source(const Gatv2Edges& graph, std::size_t edges, const BySource& by_source, const Queue& queue) {
    const cudaStream_t stream = stream_of(queue);
    const auto sources = static_cast<std::size_t>(graph.sources);
    const unsigned destination_blocks = blocks_for(static_cast<std::size_t>(graph.destinations), warps);
    GPU_LAUNCH(clear_kernel, blocks_for(sources + 1, threads), threads, 0, stream, by_source, graph.sources,
               queue.status);
    if (edges > 0) {
        GPU_LAUNCH(count_kernel, destination_blocks, threads, 0, stream, graph, by_source, queue.status);
    }
    scan(by_source.begin, sources + 1, by_source.scan, queue.status, stream);
    GPU_LAUNCH(start_kernel, blocks_for(sources, threads), threads, 0, stream, by_source, graph.sources,
               queue.status);
    if (edges > 0) {
        GPU_LAUNCH(place_kernel, destination_blocks, threads, 0, stream, graph, by_source, queue.status);
        GPU_LAUNCH(order_kernel, blocks_for(edges, threads), threads, 0, stream, graph, by_source, queue.status);
    }
}

template <class T>
void check_sizes(const Gatv2Layer<T>& layer, std::size_t edges, std::span<const float> attention,
                 std::span<const T> grad, const Gatv2Gradients<T>& gradients) {
    check_gatv2_size("attention", attention.size(), edges * static_cast<std::size_t>(layer.heads));
    check_gatv2_size("grad", grad.size(), layer.x_dst.size());
    if (!gradients.x_src.empty()) {
        check_gatv2_size("gradients.x_src", gradients.x_src.size(), layer.x_src.size());
    }
    if (!gradients.x_dst.empty()) {
        check_gatv2_size("gradients.x_dst", gradients.x_dst.size(), layer.x_dst.size());
    }
    if (!gradients.att.empty()) {
        check_gatv2_size("gradients.att", gradients.att.size(), layer.att.size());
    }
}

}  // namespace

template <class T>
std::size_t gatv2_backward_workspace(const Gatv2Layer<T>& layer, const Gatv2Options& options,
                                     const Gatv2Gradients<T>& gradients) {
    Arena arena;
    lay_out(arena, gatv2_arrays(layer, options), gradients);
    return arena.used();
}

template <class T>
void gatv2_backward(const Gatv2Layer<T>& layer, const Gatv2Options& options, std::span<const float> attention,
                    std::span<const T> grad, const Gatv2Gradients<T>& gradients, const Queue& queue) {
    const Gatv2Arrays<T> arrays = gatv2_arrays(layer, options);
    const std::size_t edges = gatv2_edges(layer.graph, options.self_loops);
    check_sizes(layer, edges, attention, grad, gradients);
    check_queue(queue, gatv2_backward_workspace(layer, options, gradients));
    Arena arena(queue.workspace.data());
    const Memory memory = lay_out(arena, arrays, gradients);
    const Flow<T> flow{attention.data(), grad.data(), static_cast<float>(1.0 / (1.0 - options.dropout))};
    const cudaStream_t stream = stream_of(queue);
    const std::size_t groups = groups_of(arrays.edges);
    const bool fours = holds_fours(layer.channels, arrays.x_src, arrays.x_dst, arrays.att, grad.data(),
                                   gradients.x_src.data(), gradients.x_dst.data());
    if (groups > 0) {
        check_gatv2_graph(arrays.edges, queue);
        with_shape(layer.channels, fours, [&](auto shape, std::int64_t tiles) {
            using S = decltype(shape);
            std::int64_t tasks = Task<S>::count(arrays, arrays.edges.destinations, 1);
            GPU_LAUNCH(GPU_KERNEL(score_kernel<T, S>), blocks_for(static_cast<std::size_t>(tasks), warps), threads,
                       0, stream, arrays, tasks, flow, memory.scores, queue.status);
            if (!gradients.x_dst.empty() || !gradients.att.empty()) {
                tasks = Task<S>::count(arrays, static_cast<std::int64_t>(groups), tiles);
                GPU_LAUNCH(GPU_KERNEL(destination_kernel<T, S>),
                           blocks_for(static_cast<std::size_t>(tasks), warps), threads, 0, stream, arrays, tasks,
                           memory, tiles, gradients.x_dst.empty() ? nullptr : gradients.x_dst.data(),
                           queue.status);
            }
        });
    }
    if (!gradients.att.empty()) {
        const std::size_t numbers = gradients.att.size();
        GPU_LAUNCH(slice_kernel, dim3(blocks_for(numbers, lanes), slices), rows_at_once * lanes, 0, stream,
                   memory.att, static_cast<std::int64_t>(groups), static_cast<std::int64_t>(numbers),
                   memory.slices, queue.status);
        GPU_LAUNCH(att_kernel<T>, blocks_for(numbers, threads), threads, 0, stream, memory.slices,
                   static_cast<std::int64_t>(numbers), gradients.att.data(), queue.status);
    }
    if (!gradients.x_src.empty()) {
        sort_by_source(arrays.edges, edges, memory.by_source, queue);
        with_shape(layer.channels, fours, [&](auto shape, std::int64_t tiles) {
            using S = decltype(shape);
            const std::int64_t tasks = Task<S>::count(arrays, arrays.edges.sources, tiles);
            GPU_LAUNCH(GPU_KERNEL(source_kernel<T, S>), blocks_for(static_cast<std::size_t>(tasks), warps),
                       threads, 0, stream, arrays, tasks, flow, memory, tiles, gradients.x_src.data(),
                       queue.status);
        });
    }
    check_launch("gatv2_backward");
}

#define PYFAST_GATV2_BACKWARD(T)                                                                    \
    template std::size_t gatv2_backward_workspace(const Gatv2Layer<T>&, const Gatv2Options&,        \
                                                  const Gatv2Gradients<T>&);                        \
    template void gatv2_backward(const Gatv2Layer<T>&, const Gatv2Options&, std::span<const float>, \
                                 std::span<const T>, const Gatv2Gradients<T>&, const Queue&);

PYFAST_GATV2_BACKWARD(float)
PYFAST_GATV2_BACKWARD(bfloat16)

}  // namespace pyfast::cuda
