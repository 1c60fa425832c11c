#include <algorithm>
#include <limits>

#include "gatv2.cuh"
#include "pyfast/cuda/gatv2.hpp"
#include "pyfast/error.hpp"
#include "scan.cuh"

namespace pyfast::cuda {

namespace {

constexpr int threads = 128;
constexpr int warps = threads / lanes;
constexpr std::int64_t group = 8;  // destinations of a warp, which sums their part of att's gradient
constexpr int most_width = 16;     // channels of a lane: twice as many sums would not fit into the registers
constexpr std::int64_t most_channels = most_width * lanes;
constexpr int rows_at_once = 8;  // parts of att's gradient that a block adds up together

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
    float* scores;  // [edges, heads] the gradients of the arguments of the softmax
    float* att;     // [groups of destinations, heads, channels]; null: not computed
    BySource by_source;
};

// What the backward pass reads besides the layer.
template <class T>
struct Flow {
    const float* attention;
    const T* grad;
    float keep;
};

// One warp for each destination and head: the gradients of its scores, from grad . x_src.
template <class T, int Width>
__global__ void __launch_bounds__(threads)
    score_kernel(Gatv2Arrays<T> layer, Flow<T> flow, float* scores, const std::int32_t* status) {
    if (*status != 0) {
        return;
    }
    for (std::int64_t task = warp_of_grid(); task < layer.edges.destinations * layer.heads;
         task += warps_of_grid()) {
        const std::int64_t i = task / layer.heads;
        const std::int64_t head = task % layer.heads;
        Channels<Width> grad;
        grad.load(flow.grad + layer.row(i, head), layer.channels);
        double mean = 0.0;
        layer.edges.each(i, [&](std::int64_t edge, std::int64_t node) {
            const std::int64_t at = edge * layer.heads + head;
            Channels<Width> feature;
            feature.load(layer.x_src + layer.row(node, head), layer.channels);
            float gradient = 0.0f;
#pragma unroll
            for (int k = 0; k < Width; ++k) {
                gradient += grad.of[k] * feature.of[k];
            }
            const float share = flow.attention[at];
            gradient = warp_sum(gradient) * (signbit(share) ? 0.0f : flow.keep);
            mean += static_cast<double>(fabsf(share)) * static_cast<double>(gradient);
            if (lane_of_thread() == 0) {
                scores[at] = gradient;
            }
        });
        __syncwarp();
        layer.edges.each_of_lane(i, [&](std::int64_t edge, bool absent) {
            const std::int64_t at = edge * layer.heads + head;
            if (!absent) {
                scores[at] = fabsf(flow.attention[at]) * (scores[at] - static_cast<float>(mean));
            }
        });
        __syncwarp();
    }
}

// A tile of one head's channels: the part that a warp of the kernels below holds in its registers.
struct Tile {
    std::int64_t first;     // channel
    std::int64_t channels;  // the number of channels

    template <class T>
    __device__ Tile(const Gatv2Arrays<T>& layer, std::int64_t number, int width)
        : first(number * width * lanes), channels(layer.channels - number * width * lanes) {}
};

// One warp for each `group` of destinations, head and tile: x_dst, unless it is null, and a part of att's
// gradient.
template <class T, int Width>
__global__ void __launch_bounds__(threads, 2)  // more registers than the compiler would choose
    destination_kernel(Gatv2Arrays<T> layer, Memory memory, std::int64_t tiles, T* of_destination,
                       const std::int32_t* status) {
    if (*status != 0) {
        return;
    }
    const std::int64_t groups = (layer.edges.destinations + group - 1) / group;
    for (std::int64_t task = warp_of_grid(); task < groups * layer.heads * tiles; task += warps_of_grid()) {
        const Tile tile(layer, task % tiles, Width);
        const std::int64_t head = task / tiles % layer.heads;
        const std::int64_t first = task / tiles / layer.heads * group;
        Channels<Width> att;
        Channels<Width> att_sum;
        att.load(layer.att + layer.row(0, head) + tile.first, tile.channels);
        att_sum.clear();
        for (std::int64_t i = first; i < first + group && i < layer.edges.destinations; ++i) {
            Channels<Width> centre;
            Channels<Width> sum;
            centre.load(layer.x_dst + layer.row(i, head) + tile.first, tile.channels);
            sum.clear();
            layer.edges.each(i, [&](std::int64_t edge, std::int64_t node) {
                const float gradient = memory.scores[edge * layer.heads + head];
                Channels<Width> feature;
                feature.load(layer.x_src + layer.row(node, head) + tile.first, tile.channels);
#pragma unroll
                for (int k = 0; k < Width; ++k) {
                    const float met = feature.of[k] + centre.of[k];
                    const float slope = met > 0.0f ? 1.0f : layer.slope;
                    sum.of[k] += gradient * (slope * att.of[k]);
                    att_sum.of[k] += (gradient * slope) * met;
                }
            });
            if (of_destination != nullptr) {
                sum.save(of_destination + layer.row(i, head) + tile.first, tile.channels);
            }
        }
        if (memory.att != nullptr) {
            att_sum.save(memory.att + layer.row(first / group, head) + tile.first, tile.channels);
        }
    }
}

// One block for each `lanes` numbers of att's gradient: adds up their parts in double, in one order.
template <class T>
__global__ void att_kernel(const float* parts, std::int64_t groups, std::int64_t numbers, T* att,
                           const std::int32_t* status) {
    if (*status != 0) {
        return;
    }
    GPU_SHARED(double, sums, rows_at_once* lanes);
    const std::int64_t number = static_cast<std::int64_t>(blockIdx.x) * lanes + lane_of_thread();
    double sum = 0.0;
    for (std::int64_t g = warp_of_thread(); g < groups && number < numbers; g += rows_at_once) {
        sum += static_cast<double>(parts[g * numbers + number]);
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (warp_of_thread() == 0 && number < numbers) {
        for (int row = 1; row < rows_at_once; ++row) {
            sum += sums[row * lanes + lane_of_thread()];
        }
        store(static_cast<float>(sum), att[number]);
    }
}

// One thread for each source: no edges yet.
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

// One warp for each source, head and tile.
template <class T, int Width>
__global__ void __launch_bounds__(threads)
    source_kernel(Gatv2Arrays<T> layer, Flow<T> flow, Memory memory, std::int64_t tiles, T* of_source,
                  const std::int32_t* status) {
    if (*status != 0) {
        return;
    }
    const BySource& by_source = memory.by_source;
    for (std::int64_t task = warp_of_grid(); task < layer.edges.sources * layer.heads * tiles;
         task += warps_of_grid()) {
        const Tile tile(layer, task % tiles, Width);
        const std::int64_t head = task / tiles % layer.heads;
        const std::int64_t j = task / tiles / layer.heads;
        Channels<Width> att;
        Channels<Width> centre;
        Channels<Width> sum;
        att.load(layer.att + layer.row(0, head) + tile.first, tile.channels);
        centre.load(layer.x_src + layer.row(j, head) + tile.first, tile.channels);
        sum.clear();
        for (std::int64_t e = by_source.begin[j]; e < by_source.begin[j + 1]; ++e) {
            const Edge edge = by_source.edges[e];
            const std::int64_t at = edge.id * layer.heads + head;
            const float gradient = memory.scores[at];
            const float share = flow.attention[at];
            const float weight = fabsf(share) * (signbit(share) ? 0.0f : flow.keep);
            Channels<Width> feature;
            Channels<Width> grad;
            feature.load(layer.x_dst + layer.row(edge.node, head) + tile.first, tile.channels);
            grad.load(flow.grad + layer.row(edge.node, head) + tile.first, tile.channels);
#pragma unroll
            for (int k = 0; k < Width; ++k) {
                const float slope = feature.of[k] + centre.of[k] > 0.0f ? 1.0f : layer.slope;
                sum.of[k] += gradient * (slope * att.of[k]);
                sum.of[k] += weight * grad.of[k];
            }
        }
        sum.save(of_source + layer.row(j, head) + tile.first, tile.channels);
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
    return {scores,
            gradients.att.empty() ? nullptr : att,
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
    constexpr auto most = static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max());
    if (edges > most || layer.graph.indptr.size() > most) {
        throw Error("indices: a GPU takes no more edges than 31 bits can count");
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
    const auto heads = static_cast<std::size_t>(layer.heads);
    const auto sources = static_cast<std::size_t>(arrays.edges.sources);
    const std::int64_t tile = std::min<std::int64_t>(layer.channels, most_channels);
    const std::int64_t tiles = (layer.channels + most_channels - 1) / most_channels;
    const std::size_t pieces = heads * static_cast<std::size_t>(tiles);
    if (groups > 0) {
        const auto destinations = static_cast<std::size_t>(arrays.edges.destinations);
        check_gatv2_graph(arrays.edges, queue);
        with_width(layer.channels, [&](auto width) {
            GPU_LAUNCH(GPU_KERNEL(score_kernel<T, decltype(width)::value>),
                       blocks_for(destinations * heads, warps), threads, 0, stream, arrays, flow, memory.scores,
                       queue.status);
        });
    }
    if (groups > 0 && !(gradients.x_dst.empty() && gradients.att.empty())) {
        with_width<most_width>(tile, [&](auto width) {
            GPU_LAUNCH(GPU_KERNEL(destination_kernel<T, decltype(width)::value>),
                       blocks_for(groups * pieces, warps), threads, 0, stream, arrays, memory, tiles,
                       gradients.x_dst.empty() ? nullptr : gradients.x_dst.data(), queue.status);
        });
    }
    if (!gradients.att.empty()) {
        GPU_LAUNCH(att_kernel<T>, blocks_for(gradients.att.size(), lanes), rows_at_once * lanes, 0, stream,
                   memory.att, static_cast<std::int64_t>(groups), static_cast<std::int64_t>(gradients.att.size()),
                   gradients.att.data(), queue.status);
    }
    if (!gradients.x_src.empty()) {
        sort_by_source(arrays.edges, edges, memory.by_source, queue);
        with_width<most_width>(tile, [&](auto width) {
            GPU_LAUNCH(GPU_KERNEL(source_kernel<T, decltype(width)::value>), blocks_for(sources * pieces, warps),
                       threads, 0, stream, arrays, flow, memory, tiles, gradients.x_src.data(), queue.status);
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
