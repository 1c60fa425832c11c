#include "pyfast/gatv2.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "gatv2_rows.hpp"
#include "parallel.hpp"
#include "pyfast/error.hpp"
#include "pyfast/pools.hpp"

namespace pyfast {

namespace {

using namespace gatv2_rows;

// The number of destinations in a block. A thread takes a block, and sums its part of att's gradient. The number
// is fixed, so sums do not depend on the threads.
constexpr std::size_t block_size = 32;

void check_size(const char* name, std::size_t found, std::size_t expected) {
    if (found != expected) {
        throw Error(std::string(name) + ": expected " + std::to_string(expected) + " numbers, got " +
                    std::to_string(found));
    }
}

// The checked graph, with its self-loops.
struct Topology {
    Gatv2Graph graph;
    std::size_t stored = 0;  // the edges of the graph; loop i is edge stored + i
    std::size_t sources = 0;
    std::size_t destinations = 0;
    bool self_loops = false;

    [[nodiscard]] std::size_t edges() const { return stored + (self_loops ? destinations : 0); }
    [[nodiscard]] std::size_t source(std::size_t edge) const {
        return static_cast<std::size_t>(graph.indices64.empty() ? graph.indices32[edge] : graph.indices64[edge]);
    }
    [[nodiscard]] std::size_t begin(std::size_t destination) const {
        return static_cast<std::size_t>(graph.indptr[destination]);
    }
    // Calls use(edge, source) for the edges of the destination, with its self-loop and without edges that the loop
    // replaces.
    template <class Use>
    void each(std::size_t destination, const Use& use) const {
        for (std::size_t edge = begin(destination); edge < begin(destination + 1); ++edge) {
            const std::size_t node = source(edge);
            if (!self_loops || node != destination) {
                use(edge, node);
            }
        }
        if (self_loops && destination < sources) {
            use(stored + destination, destination);
        }
    }
};

template <class Index>
void check_indices(std::span<const Index> indices, std::size_t sources) {
    for (const Index index : indices) {
        if (index < 0 || static_cast<std::uint64_t>(index) >= sources) {
            throw Error("indices: there is no source " + std::to_string(index) +
                        "; number of sources: " + std::to_string(sources));
        }
    }
}

template <class T>
Shape shape_of(const Gatv2Layer<T>& layer) {
    if (layer.heads < 1 || layer.channels < 1 ||
        layer.channels > std::numeric_limits<std::int32_t>::max() / layer.heads) {
        throw Error("att: expected at least one head and one channel, and fewer than 2^31 numbers, got " +
                    std::to_string(layer.heads) + " x " + std::to_string(layer.channels));
    }
    const auto channels = static_cast<std::size_t>(layer.channels);
    constexpr std::size_t lanes = Lanes<Gatv2Sum<T>>::count;
    return {static_cast<std::size_t>(layer.heads), channels, (channels + lanes - 1) / lanes};
}

template <class T>
Topology topology_of(const Gatv2Layer<T>& layer, const Shape& shape, bool self_loops) {
    const Gatv2Graph& graph = layer.graph;
    if (!graph.indices32.empty() && !graph.indices64.empty()) {
        throw Error("indices: expected 32-bit or 64-bit numbers, not both");
    }
    const std::size_t stored = graph.indices32.size() + graph.indices64.size();
    check_offsets(graph.indptr, stored, "indptr");
    const Topology out{graph, stored, layer.x_src.size() / shape.numbers(), graph.indptr.size() - 1, self_loops};
    check_size("att", layer.att.size(), shape.numbers());
    check_size("x_src", layer.x_src.size(), out.sources * shape.numbers());
    check_size("x_dst", layer.x_dst.size(), out.destinations * shape.numbers());
    check_indices(graph.indices32, out.sources);
    check_indices(graph.indices64, out.sources);
    return out;
}

void check_options(const Gatv2Options& options) {
    if (!std::isfinite(options.negative_slope)) {
        throw Error("negative_slope: must be finite");
    }
    if (!(options.dropout >= 0.0 && options.dropout < 1.0)) {
        throw Error("dropout: must lie in [0, 1)");
    }
}

// How many numbers the edges read. A further thread pays off for each 2^18 of them.
std::size_t work(const Topology& graph, const Shape& shape) {
    return (graph.edges() + graph.destinations) * shape.numbers();
}
int threads_for(const Topology& graph, const Shape& shape, int wanted) {
    constexpr std::size_t share = std::size_t{1} << 18;
    return static_cast<int>(
        std::min(static_cast<std::size_t>(std::max(wanted, 1)), 1 + work(graph, shape) / share));
}

// att in the form that the rows read, and the memory for it.
template <class T>
struct OwnedAttention {
    using A = Gatv2Sum<T>;
    Vectors<A> positive;
    Vectors<A> negative;
    A slope;

    OwnedAttention(const Shape& shape, std::span<const T> att, double negative_slope)
        : positive(shape.vectors()), negative(shape.vectors()), slope(static_cast<A>(negative_slope)) {
        spread(shape, att.data(), positive.data());
        for (std::size_t v = 0; v < positive.size(); ++v) {
            for (std::size_t lane = 0; lane < Lanes<A>::count; ++lane) {
                negative[v].lane[lane] = slope * positive[v].lane[lane];
            }
        }
    }
    [[nodiscard]] Attention<A> view() const { return {positive.data(), negative.data(), slope}; }
};

// The edges of the destinations of one block. Its destination i has the edges begin[i] to begin[i + 1].
struct Block {
    std::vector<Edge> edges;
    std::vector<std::size_t> begin;

    void gather(const Topology& graph, std::size_t first, std::size_t last) {
        edges.clear();
        begin.assign(1, 0);
        for (std::size_t i = first; i < last; ++i) {
            graph.each(i, [&](std::size_t edge, std::size_t node) { edges.push_back({edge, node}); });
            begin.push_back(edges.size());
        }
    }
    [[nodiscard]] Edges of(std::size_t i) const {
        return {edges.data() + begin[i], edges.data() + begin[i + 1], edges.data() + edges.size()};
    }
};

// Whether an edge's weight of a head is dropped. This is decided by number `at` of the SplitMix64 generator
// (Steele, Lea, Flood 2014), which starts at a mix of the seed. Computing any of its numbers takes constant time.
class Dropped {
  public:
    explicit Dropped(const Gatv2Options& options)
        : options_(options), start_(mix(options.seed + step)), any_(options.masked || options.dropout > 0.0) {}
    [[nodiscard]] bool any() const { return any_; }
    bool operator()(std::size_t at) const {
        if (options_.masked) {
            return options_.mask[at] == 0;
        }
        const std::uint64_t random = mix(start_ + step * static_cast<std::uint64_t>(at));
        return static_cast<double>(random >> 11) * 0x1p-53 < options_.dropout;
    }

  private:
    static constexpr std::uint64_t step = 0x9E3779B97F4A7C15;
    static std::uint64_t mix(std::uint64_t z) {
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
        z = (z ^ z >> 27) * 0x94D049BB133111EB;
        return z ^ z >> 31;
    }

    const Gatv2Options& options_;
    std::uint64_t start_;
    bool any_;
};

template <class T>
struct ForwardSpace {
    using A = Gatv2Sum<T>;
    Block block;
    Vectors<A> centre;
    Vectors<A> sum;
    std::vector<A> scores;  // [edges, heads]
    std::vector<double> shares;
};

// Turns the scores of one destination into weights, and writes its rows of attention.
template <class A>
void soften(const Shape& shape, const Edges& edges, const Dropped& dropped, A keep, std::vector<double>& shares,
            A* scores, A* attention) {
    const std::size_t heads = shape.heads;
    shares.resize(edges.size() * heads);
    for (std::size_t h = 0; h < heads; ++h) {
        A most = -std::numeric_limits<A>::infinity();
        for (std::size_t at = h; at < shares.size(); at += heads) {
            most = std::max(most, scores[at]);
        }
        for (std::size_t at = h; at < shares.size(); at += heads) {
            shares[at] = static_cast<double>(scores[at] - most);
        }
    }
    exponentials(shares);
    for (std::size_t h = 0; h < heads; ++h) {
        double sum = 0.0;
        for (std::size_t at = h; at < shares.size(); at += heads) {
            sum += shares[at];
        }
        for (std::size_t k = 0; k < edges.size(); ++k) {
            const std::size_t at = edges.begin[k].id * heads + h;
            const A share = static_cast<A>(shares[k * heads + h] / sum);
            const bool off = dropped.any() && dropped(at);
            attention[at] = off ? -share : share;
            scores[k * heads + h] = share * (off ? A{0} : keep);
        }
    }
}

// The same graph by source: the edges that lead to each node, in the order of the edges.
struct Transposed {
    std::vector<std::size_t> begin;
    std::vector<Edge> edges;

    explicit Transposed(const Topology& graph) : begin(graph.sources + 2, 0) {
        const auto each = [&](const auto& use) {
            for (std::size_t i = 0; i < graph.destinations; ++i) {
                graph.each(i, [&](std::size_t edge, std::size_t source) { use(edge, source, i); });
            }
        };
        each([&](std::size_t, std::size_t source, std::size_t) { ++begin[source + 2]; });
        for (std::size_t j = 2; j < begin.size(); ++j) {
            begin[j] += begin[j - 1];
        }
        edges.resize(begin.back());
        each([&](std::size_t edge, std::size_t source, std::size_t i) { edges[begin[source + 1]++] = {edge, i}; });
    }
    [[nodiscard]] Edges of(std::size_t j) const {
        return {edges.data() + begin[j], edges.data() + begin[j + 1], edges.data() + edges.size()};
    }
};

template <class T>
struct BackwardSpace {
    using A = Gatv2Sum<T>;
    Block block;
    Vectors<A> centre;
    Vectors<A> grad;
    Vectors<A> sum;
    std::vector<A> gradients;  // [edges, heads]
};

// Turns grad . x_src into the gradients of the scores, which are the arguments of the softmax.
template <class A>
void soften_backward(const Shape& shape, const Edges& edges, const A* attention, A keep, A* gradients, A* all) {
    for (std::size_t h = 0; h < shape.heads; ++h) {
        double mean = 0.0;
        for (std::size_t k = 0; k < edges.size(); ++k) {
            const A share = attention[edges.begin[k].id * shape.heads + h];
            A& gradient = gradients[k * shape.heads + h];
            gradient *= std::signbit(share) ? A{0} : keep;
            mean += static_cast<double>(std::abs(share)) * static_cast<double>(gradient);
        }
        for (std::size_t k = 0; k < edges.size(); ++k) {
            const std::size_t at = edges.begin[k].id * shape.heads + h;
            A& gradient = gradients[k * shape.heads + h];
            gradient = std::abs(attention[at]) * (gradient - static_cast<A>(mean));
            all[at] = gradient;
        }
    }
}

template <class A>
void clear(Vectors<A>& row, const Shape& shape) {
    row.assign(shape.vectors(), Lanes<A>{});
}

}  // namespace

template <class T>
void gatv2(const Gatv2Layer<T>& layer, const Gatv2Options& options, std::span<T> y,
           std::span<Gatv2Sum<T>> attention) {
    using A = Gatv2Sum<T>;
    check_options(options);
    const Shape shape = shape_of(layer);
    const Topology graph = topology_of(layer, shape, options.self_loops);
    check_size("y", y.size(), layer.x_dst.size());
    check_size("attention", attention.size(), graph.edges() * shape.heads);
    if (options.masked) {
        check_size("mask", options.mask.size(), attention.size());
    }
    const OwnedAttention<T> att(shape, layer.att, options.negative_slope);
    const Dropped dropped(options);
    const A keep = static_cast<A>(1.0 / (1.0 - options.dropout));
    if (options.self_loops) {
        std::fill(attention.begin(), attention.end(), A{0});
    }
    parallel_for((graph.destinations + block_size - 1) / block_size, threads_for(graph, shape, options.threads), 1,
                 [] { return ForwardSpace<T>(); },
                 [&](ForwardSpace<T>& space, std::size_t b) {
                     const std::size_t first = b * block_size;
                     const std::size_t last = std::min(first + block_size, graph.destinations);
                     space.block.gather(graph, first, last);
                     space.centre.resize(shape.vectors());
                     for (std::size_t i = first; i < last; ++i) {
                         const Edges edges = space.block.of(i - first);
                         clear(space.sum, shape);
                         space.scores.resize(edges.size() * shape.heads);
                         spread(shape, layer.x_dst.data() + i * shape.numbers(), space.centre.data());
                         score(shape, att.view(), layer.x_src.data(), space.centre.data(), edges,
                               space.scores.data());
                         soften(shape, edges, dropped, keep, space.shares, space.scores.data(), attention.data());
                         aggregate(shape, layer.x_src.data(), edges, space.scores.data(), space.sum.data());
                         gather(shape, space.sum.data(), y.data() + i * shape.numbers());
                     }
                 });
}

template <class T>
void gatv2_backward(const Gatv2Layer<T>& layer, const Gatv2Options& options,
                    std::span<const Gatv2Sum<T>> attention, std::span<const T> grad,
                    const Gatv2Gradients<T>& gradients) {
    using A = Gatv2Sum<T>;
    check_options(options);
    const Shape shape = shape_of(layer);
    const Topology graph = topology_of(layer, shape, options.self_loops);
    check_size("attention", attention.size(), graph.edges() * shape.heads);
    check_size("grad", grad.size(), layer.x_dst.size());
    const bool of_source = !gradients.x_src.empty();
    const bool of_destination = !gradients.x_dst.empty();
    const bool of_att = !gradients.att.empty();
    if (of_source) {
        check_size("gradients.x_src", gradients.x_src.size(), layer.x_src.size());
    }
    if (of_destination) {
        check_size("gradients.x_dst", gradients.x_dst.size(), layer.x_dst.size());
    }
    if (of_att) {
        check_size("gradients.att", gradients.att.size(), layer.att.size());
    }
    const OwnedAttention<T> att(shape, layer.att, options.negative_slope);
    const A keep = static_cast<A>(1.0 / (1.0 - options.dropout));
    const int threads = threads_for(graph, shape, options.threads);
    const std::size_t blocks = (graph.destinations + block_size - 1) / block_size;
    std::vector<A> of_scores(attention.size());
    Vectors<A> att_parts(blocks * shape.vectors());

    const auto space = [] { return BackwardSpace<T>(); };
    parallel_for(blocks, threads, 1, space, [&](BackwardSpace<T>& s, std::size_t b) {
        const std::size_t first = b * block_size;
        const std::size_t last = std::min(first + block_size, graph.destinations);
        s.block.gather(graph, first, last);
        s.centre.resize(shape.vectors());
        s.grad.resize(shape.vectors());
        for (std::size_t i = first; i < last; ++i) {
            const Edges edges = s.block.of(i - first);
            s.gradients.resize(edges.size() * shape.heads);
            spread(shape, grad.data() + i * shape.numbers(), s.grad.data());
            dot(shape, layer.x_src.data(), s.grad.data(), edges, s.gradients.data());
            soften_backward(shape, edges, attention.data(), keep, s.gradients.data(), of_scores.data());
            if (of_destination || of_att) {
                clear(s.sum, shape);
                spread(shape, layer.x_dst.data() + i * shape.numbers(), s.centre.data());
                add_to_destination(shape, att.view(), layer.x_src.data(), s.centre.data(), edges,
                                   s.gradients.data(), s.sum.data(), att_parts.data() + b * shape.vectors());
            }
            if (of_destination) {
                gather(shape, s.sum.data(), gradients.x_dst.data() + i * shape.numbers());
            }
        }
    });
    if (of_att) {
        Vectors<A> sum(shape.vectors());
        for (std::size_t v = 0; v < shape.vectors(); ++v) {
            for (std::size_t lane = 0; lane < Lanes<A>::count; ++lane) {
                double total = 0.0;
                for (std::size_t b = 0; b < blocks; ++b) {
                    total += static_cast<double>(att_parts[b * shape.vectors() + v].lane[lane]);
                }
                sum[v].lane[lane] = static_cast<A>(total);
            }
        }
        gather(shape, sum.data(), gradients.att.data());
    }
    if (of_source) {
        const Transposed transposed(graph);
        parallel_for(graph.sources, threads, block_size, space, [&](BackwardSpace<T>& s, std::size_t j) {
            clear(s.sum, shape);
            s.centre.resize(shape.vectors());
            spread(shape, layer.x_src.data() + j * shape.numbers(), s.centre.data());
            add_to_source(shape, att.view(), layer.x_dst.data(), grad.data(), s.centre.data(), transposed.of(j),
                          of_scores.data(), attention.data(), keep, s.sum.data());
            gather(shape, s.sum.data(), gradients.x_src.data() + j * shape.numbers());
        });
    }
}

#define PYFAST_GATV2(T)                                                                                      \
    template void gatv2<T>(const Gatv2Layer<T>&, const Gatv2Options&, std::span<T>, std::span<Gatv2Sum<T>>); \
    template void gatv2_backward<T>(const Gatv2Layer<T>&, const Gatv2Options&, std::span<const Gatv2Sum<T>>, \
                                    std::span<const T>, const Gatv2Gradients<T>&);

PYFAST_GATV2(float)
PYFAST_GATV2(double)
PYFAST_GATV2(bfloat16)

}  // namespace pyfast
