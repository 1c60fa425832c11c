#include "pyfast/betweenness.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "aligned.hpp"
#include "each_pool.hpp"
#include "multiversion.hpp"
#include "parallel.hpp"
#include "pool_matrix.hpp"
#include "pyfast/error.hpp"
#include "reused.hpp"

namespace pyfast {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr std::size_t small_pool = 512;  // a pool of up to this many nodes is handled by one thread
constexpr double most_paths = 0x1p512;   // larger numbers of paths are scaled down

// The shortest paths from one source: the nodes in the order in which they are settled, and the edges on these
// paths.
struct ShortestPaths {
    std::vector<std::int32_t> order;
    std::vector<std::int64_t> begin;  // for each place in the order: where its node's edges begin in `to`
    std::vector<std::int32_t> to;
};

// A node in a breadth-first search.
struct Found {
    double count;        // the number of shortest paths to it
    std::int32_t hops;   // -1: not found
    std::int32_t place;  // its place in the order
};

struct Workspace {
    std::vector<double> lengths;  // of each edge
    std::vector<std::size_t>
        first_hop;  // for each node: where its edges begin in `hop`, without self-loops and edges of weight 0
    std::vector<std::int32_t> hop;
    std::vector<Found> found;
    Aligned<double> matrix;    // dense: n x padded lengths, infinite for pairs without an edge
    Aligned<double> reversed;  // dense: the same for the edges that lead to a node
    Aligned<double> distance;  // dense: n x padded; otherwise the distances from one source
    Aligned<double> limit;
    Aligned<std::int64_t> place;
    std::vector<std::pair<double, std::int32_t>> heap;
    ShortestPaths paths;
    Aligned<double> count;
    std::vector<std::int32_t> level;
    Aligned<double> share;
    std::vector<double> sum;

    void trim() {
        pyfast::trim(lengths);
        pyfast::trim(hop);
        pyfast::trim(paths.to);
        pyfast::trim(heap);
    }
};

constexpr std::size_t lanes = sizeof(Quad) / sizeof(double);  // a row has a multiple of these
using Longs [[gnu::vector_size(lanes * sizeof(std::int64_t))]] = std::int64_t;

// distance_ij = min(distance_ij, distance_ik + distance_kj) for each k in turn (Floyd and Warshall).
PYFAST_MULTIVERSION void shorten(double* distance, std::size_t n, std::size_t padded) {
    for (std::size_t k = 0; k < n; ++k) {
        const double* const via = distance + k * padded;
        for (std::size_t i = 0; i < n; ++i) {
            double* const row = distance + i * padded;
            const double first = row[k];
            if (i == k || first == infinity) {
                continue;
            }
            for (std::size_t j = 0; j < padded; j += lanes) {
                Quad now;
                Quad then;
                std::memcpy(&now, row + j, sizeof now);
                std::memcpy(&then, via + j, sizeof then);
                then = first + then;
                now = then < now ? then : now;
                std::memcpy(row + j, &now, sizeof now);
            }
        }
    }
}

// place[v] = the number of nodes that are nearer than v.
PYFAST_MULTIVERSION void rank_distances(const double* distance, std::size_t n, std::size_t padded,
                                        std::int64_t* place) {
    for (std::size_t v = 0; v < padded; v += lanes) {
        Quad d;
        std::memcpy(&d, distance + v, sizeof d);
        Longs nearer{};
        for (std::size_t u = 0; u < n; ++u) {
            nearer = distance[u] < d ? nearer + 1 : nearer;
        }
        std::memcpy(place + v, &nearer, sizeof nearer);
    }
}

// The input of Brandes's algorithm for one source of a dense pool. All rows are padded.
struct DenseSource {
    std::size_t padded;
    const double* lengths;   // row v: the lengths of the edges that leave v
    const double* reversed;  // row w: the lengths of the edges that lead to w
    const double* distance;
    const double* limit;                  // a path to the node counts as shortest up to this length; -1: no path
    std::span<const std::int32_t> order;  // the nodes that the source reaches, by distance
};

// count_w = the number of shortest paths to w. share_v = (dependency of the source on v) / count_v. Both start at
// 0, except the source's count.
PYFAST_MULTIVERSION void count_dense(const DenseSource& s, double* count, double* share) {
    for (const std::int32_t node : s.order) {
        const auto v = static_cast<std::size_t>(node);
        const double* const row = s.lengths + v * s.padded;
        const double distance = s.distance[v];
        const double paths = count[v];
        for (std::size_t w = 0; w < s.padded; w += lanes) {
            Quad length;
            Quad limit;
            Quad sum;
            std::memcpy(&length, row + w, sizeof length);
            std::memcpy(&limit, s.limit + w, sizeof limit);
            std::memcpy(&sum, count + w, sizeof sum);
            sum = distance + length <= limit ? sum + paths : sum;
            std::memcpy(count + w, &sum, sizeof sum);
        }
    }
    for (std::size_t at = s.order.size(); at-- > 1;) {
        const auto w = static_cast<std::size_t>(s.order[at]);
        const double* const row = s.reversed + w * s.padded;
        const double limit = s.limit[w];
        const double part = 1.0 / count[w] + share[w];
        for (std::size_t v = 0; v < s.padded; v += lanes) {
            Quad length;
            Quad distance;
            Quad sum;
            std::memcpy(&length, row + v, sizeof length);
            std::memcpy(&distance, s.distance + v, sizeof distance);
            std::memcpy(&sum, share + v, sizeof sum);
            sum = distance + length <= limit ? sum + part : sum;
            std::memcpy(share + v, &sum, sizeof sum);
        }
    }
}

// `given` has the pool's own lengths, or is empty.
void read_lengths(Workspace& space, const PoolEdges& pool, EdgeLength length, std::span<const double> given) {
    space.lengths.resize(pool.edges());
    for (std::size_t v = 0; v < pool.nodes(); ++v) {
        for (std::size_t e = pool.begin(v); e < pool.begin(v + 1); ++e) {
            const auto weight = static_cast<double>(pool.weights[e]);
            const bool counts = weight > 0.0 && static_cast<std::size_t>(pool.indices[e]) != v;
            const double known = !given.empty() ? given[e] : length == EdgeLength::hops ? 1.0 : 1.0 / weight;
            space.lengths[e] = counts ? known : infinity;
        }
    }
}

void read_hops(Workspace& space, const PoolEdges& pool) {
    space.hop.clear();
    space.first_hop.assign(1, 0);
    for (std::size_t v = 0; v < pool.nodes(); ++v) {
        const PoolEdges::Row row = pool.row(v);
        for (std::size_t e = 0; e < row.indices.size(); ++e) {
            if (row.weights[e] > 0.0f && static_cast<std::size_t>(row.indices[e]) != v) {
                space.hop.push_back(row.indices[e]);
            }
        }
        space.first_hop.push_back(space.hop.size());
    }
}

// All distances of a dense pool. Returns false if an edge is so short, compared with the longest distance, that
// adding it may change nothing: distances then do not tell which of two nodes comes first.
bool all_distances(Workspace& space, const PoolEdges& pool) {
    const std::size_t n = pool.nodes();
    const std::size_t padded = rounded_up(n, lanes_of_doubles);
    space.matrix.assign(n * padded, infinity);
    space.reversed.assign(n * padded, infinity);
    double shortest = infinity;
    for (std::size_t v = 0; v < n; ++v) {
        for (std::size_t e = pool.begin(v); e < pool.begin(v + 1); ++e) {
            const auto w = static_cast<std::size_t>(pool.indices[e]);
            space.matrix[v * padded + w] = space.reversed[w * padded + v] = space.lengths[e];
            shortest = std::min(shortest, space.lengths[e]);
        }
    }
    space.distance = space.matrix;
    for (std::size_t v = 0; v < n; ++v) {
        space.distance[v * padded + v] = 0.0;
    }
    shorten(space.distance.data(), n, padded);
    double longest = 0.0;
    for (const double d : space.distance) {
        longest = d < infinity ? std::max(longest, d) : longest;
    }
    return shortest > 4.0 * equal_length * longest;
}

void add_dense_source(Workspace& space, std::size_t n, std::size_t source) {
    const std::size_t padded = rounded_up(n, lanes_of_doubles);
    const double* const distance = space.distance.data() + source * padded;
    space.place.resize(padded);
    rank_distances(distance, n, padded, space.place.data());
    std::vector<std::int32_t>& order = space.paths.order;
    order.assign(n, -1);
    space.limit.assign(padded, -1.0);
    std::size_t reached = 0;
    for (std::size_t v = 0; v < n; ++v) {
        if (distance[v] < infinity) {
            auto at = static_cast<std::size_t>(space.place[v]);
            while (order[at] >= 0) {
                ++at;  // equal distances, in any order
            }
            order[at] = static_cast<std::int32_t>(v);
            space.limit[v] = distance[v] * (1.0 + equal_length);
            ++reached;
        }
    }
    space.count.assign(padded, 0.0);
    space.share.assign(padded, 0.0);
    space.count[source] = 1.0;
    count_dense({padded, space.matrix.data(), space.reversed.data(), distance, space.limit.data(),
                 std::span(order).first(reached)},
                space.count.data(), space.share.data());
    space.share[source] = 0.0;
    for (std::size_t v = 0; v < n; ++v) {
        space.sum[v] += space.count[v] * space.share[v];
    }
}

// Dijkstra, then a second pass over the edges of the nodes that it reached.
void find_paths(Workspace& space, const PoolEdges& pool, std::size_t source) {
    const std::size_t n = pool.nodes();
    space.distance.assign(n, infinity);
    space.place.assign(n, -1);
    ShortestPaths& paths = space.paths;
    paths.order.clear();
    space.distance[source] = 0.0;
    space.heap.assign(1, {0.0, static_cast<std::int32_t>(source)});
    while (!space.heap.empty()) {
        std::pop_heap(space.heap.begin(), space.heap.end(), std::greater<>());
        const std::int32_t node = space.heap.back().second;
        space.heap.pop_back();
        const auto v = static_cast<std::size_t>(node);
        if (space.place[v] >= 0) {
            continue;
        }
        space.place[v] = static_cast<std::int64_t>(paths.order.size());
        paths.order.push_back(node);
        for (std::size_t e = pool.begin(v); e < pool.begin(v + 1); ++e) {
            const double there = space.distance[v] + space.lengths[e];
            double& known = space.distance[static_cast<std::size_t>(pool.indices[e])];
            if (there < known) {
                known = there;
                space.heap.emplace_back(there, pool.indices[e]);
                std::push_heap(space.heap.begin(), space.heap.end(), std::greater<>());
            }
        }
    }
    paths.begin.assign(1, 0);
    paths.to.clear();
    for (const std::int32_t node : paths.order) {
        const auto v = static_cast<std::size_t>(node);
        for (std::size_t e = pool.begin(v); e < pool.begin(v + 1); ++e) {
            const auto w = static_cast<std::size_t>(pool.indices[e]);
            if (space.lengths[e] < infinity && space.place[w] > space.place[v] &&
                space.distance[v] + space.lengths[e] <= space.distance[w] * (1.0 + equal_length)) {
                paths.to.push_back(pool.indices[e]);
            }
        }
        paths.begin.push_back(static_cast<std::int64_t>(paths.to.size()));
    }
}

// `number` / 2^(512 levels), to be added to numbers with a larger scale.
double lowered(double number, std::int32_t levels) {
    return levels == 0 ? number : levels == 1 ? number * 0x1p-512 : 0.0;
}

// Brandes: adds to `sum` the share of each node in the shortest paths of one source. With thousands of nodes there
// can be more paths than a double can count, so node v has count_v * 2^(512 level_v) of them.
void add_dependencies(Workspace& space) {
    const ShortestPaths& paths = space.paths;
    const std::size_t reached = paths.order.size();
    for (const std::int32_t v : paths.order) {
        space.count[static_cast<std::size_t>(v)] = 0.0;
        space.level[static_cast<std::size_t>(v)] = 0;
    }
    space.count[static_cast<std::size_t>(paths.order[0])] = 1.0;
    const auto each = [&](std::size_t at, const auto& visit) {
        for (auto e = static_cast<std::size_t>(paths.begin[at]); e < static_cast<std::size_t>(paths.begin[at + 1]);
             ++e) {
            visit(static_cast<std::size_t>(paths.to[e]));
        }
    };
    for (std::size_t at = 0; at < reached; ++at) {
        const auto v = static_cast<std::size_t>(paths.order[at]);
        if (space.count[v] > most_paths) {
            space.count[v] *= 0x1p-512;
            ++space.level[v];
        }
        each(at, [&](std::size_t w) {
            if (space.level[w] < space.level[v]) {
                space.count[w] = lowered(space.count[w], space.level[v] - space.level[w]);
                space.level[w] = space.level[v];
            }
            space.count[w] += lowered(space.count[v], space.level[w] - space.level[v]);
        });
    }
    // share_v = (1 + dependency of the source on v) / count_v, so that no division waits for another one.
    for (std::size_t at = reached; at-- > 1;) {
        const auto v = static_cast<std::size_t>(paths.order[at]);
        double shares = 0.0;
        each(at, [&](std::size_t w) { shares += lowered(space.share[w], space.level[w] - space.level[v]); });
        space.share[v] = 1.0 / space.count[v] + shares;
        space.sum[v] += space.count[v] * shares;
    }
}

// Does the same as find_paths and add_dependencies if all edges have length 1, by a breadth-first search. Here,
// `to` has places in the order. Returns false, and adds nothing, if the numbers of paths need a scale.
bool add_hops_source(Workspace& space, std::size_t n, std::size_t source) {
    space.found.assign(n, Found{0.0, -1, 0});
    // One more entry than nodes, as in `to`, for writes that are never read.
    space.paths.order.resize(n + 1);
    space.paths.begin.resize(n + 1);
    space.paths.to.resize(space.hop.size() + 1);
    Found* const found = space.found.data();
    std::int32_t* const order = space.paths.order.data();
    std::int64_t* const begin = space.paths.begin.data();
    std::int32_t* const to = space.paths.to.data();
    found[source] = {1.0, 0, 0};
    order[0] = static_cast<std::int32_t>(source);
    std::size_t reached = 1;
    std::size_t end = 0;
    double most = 1.0;
    for (std::size_t at = 0; at < reached; ++at) {
        const auto v = static_cast<std::size_t>(order[at]);
        const double count = found[v].count;
        const std::int32_t hops = found[v].hops + 1;
        most = std::max(most, count);
        begin[at] = static_cast<std::int64_t>(end);
        for (std::size_t e = space.first_hop[v]; e < space.first_hop[v + 1]; ++e) {
            // No branch here: the processor cannot predict where an edge leads.
            const std::int32_t node = space.hop[e];
            Found& next = found[static_cast<std::size_t>(node)];
            const bool is_new = next.hops < 0;
            order[reached] = node;
            next.place = is_new ? static_cast<std::int32_t>(reached) : next.place;
            next.hops = is_new ? hops : next.hops;
            reached += is_new ? 1 : 0;
            const bool leads_on = next.hops == hops;
            next.count += leads_on ? count : 0.0;
            to[end] = next.place;
            end += leads_on ? 1 : 0;
        }
    }
    if (most > most_paths) {
        return false;
    }
    begin[reached] = static_cast<std::int64_t>(end);
    double* const share = space.share.data();
    for (std::size_t at = reached; at-- > 1;) {
        double shares = 0.0;
        for (auto e = static_cast<std::size_t>(begin[at]); e < static_cast<std::size_t>(begin[at + 1]); ++e) {
            shares += share[static_cast<std::size_t>(to[e])];
        }
        const auto v = static_cast<std::size_t>(order[at]);
        share[at] = 1.0 / found[v].count + shares;
        space.sum[v] += found[v].count * shares;
    }
    return true;
}

// The sources of a pool of n nodes, ascending: all nodes, or k of them, drawn with the seed.
std::vector<std::int32_t> sources_of(std::size_t n, const BetweennessOptions& options) {
    std::vector<std::int32_t> nodes(n);
    std::iota(nodes.begin(), nodes.end(), 0);
    if (options.k && static_cast<std::size_t>(*options.k) < n) {
        const auto k = static_cast<std::size_t>(*options.k);
        std::uint64_t state = options.seed;
        for (std::size_t i = 0; i < k; ++i) {
            state += 0x9E3779B97F4A7C15U;  // SplitMix64
            std::uint64_t bits = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9U;
            bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBU;
            std::swap(nodes[i], nodes[i + (bits ^ (bits >> 31)) % (n - i)]);
        }
        nodes.resize(k);
        std::sort(nodes.begin(), nodes.end());
    }
    return nodes;
}

// Some sources of a pool, which one thread handles.
struct Task {
    std::size_t pool;
    std::size_t first;
    std::size_t last;
    bool whole;  // whether they are all of the pool's sources
};

// A small pool is one task. A larger one is split into at most 64 tasks, however many threads there are.
std::vector<Task> tasks_of(const Graphs& graphs, const BetweennessOptions& options) {
    std::vector<Task> tasks;
    for (std::size_t p = 0; p < graphs.size(); ++p) {
        const auto n = static_cast<std::size_t>(graphs.pool_offsets[p + 1] - graphs.pool_offsets[p]);
        const std::size_t sources = options.k ? std::min(n, static_cast<std::size_t>(*options.k)) : n;
        const std::size_t most = n <= small_pool ? n : std::max((sources + 63) / 64, small_pool / 8);
        std::size_t first = 0;
        do {
            tasks.push_back({p, first, std::min(first + most, sources), sources <= most});
            first += most;
        } while (first < sources);
    }
    return tasks;
}

void check_lengths(std::span<const double> lengths, std::size_t p) {
    if (!std::all_of(lengths.begin(), lengths.end(), [](double d) { return d > 0.0 && d < infinity; })) {
        throw Error("length: a number of pool " + std::to_string(p) + " is zero, negative, infinite or NaN");
    }
}

void add_sources(Workspace& space, const PoolEdges& pool, const Task& task, std::span<const double> lengths,
                 const BetweennessOptions& options) {
    const std::size_t n = pool.nodes();
    space.sum.assign(n, 0.0);
    check_lengths(lengths, task.pool);
    if (n <= 2) {
        return;
    }
    const std::vector<std::int32_t> sources = sources_of(n, options);
    read_lengths(space, pool, options.length, lengths);
    // Computing all distances pays off if many nodes are sources.
    const bool dense =
        n <= small_pool && pool.edges() * 8 >= n * n && sources.size() * 4 >= n && all_distances(space, pool);
    const bool hops = lengths.empty() && options.length == EdgeLength::hops;
    space.count.resize(n);
    space.level.resize(n);
    space.share.resize(n);
    if (hops && !dense) {
        read_hops(space, pool);
    }
    for (std::size_t s = task.first; s < task.last; ++s) {
        check_stop(options.stop);
        const auto source = static_cast<std::size_t>(sources[s]);
        if (dense) {
            add_dense_source(space, n, source);
        } else if (!hops || !add_hops_source(space, n, source)) {
            find_paths(space, pool, source);
            add_dependencies(space);
        }
    }
}

// Divides the sum of each node by the number of pairs that it can lie between.
void write_centrality(std::span<const double> sum, const BetweennessOptions& options, std::span<float> out) {
    const std::size_t n = sum.size();
    if (n <= 2) {
        std::fill(out.begin(), out.end(), 0.0f);
        return;
    }
    const std::vector<std::int32_t> sources = sources_of(n, options);
    const auto ends = static_cast<double>(n - 2);
    const bool all = sources.size() == n;
    const double pairs = static_cast<double>(all ? n - 1 : sources.size()) * ends;
    std::transform(sum.begin(), sum.end(), out.begin(), [&](double s) { return static_cast<float>(s / pairs); });
    if (!all) {
        const double own_pairs = static_cast<double>(sources.size() - 1) * ends;
        for (const std::int32_t s : sources) {
            const auto v = static_cast<std::size_t>(s);
            out[v] = static_cast<float>(sum[v] / own_pairs);  // 0 / 0 = NaN for a single source
        }
    }
}

}  // namespace

void betweenness(const Graphs& graphs, const BetweennessOptions& options, std::span<float> centrality) {
    check_batch(graphs, centrality, "centrality");
    if (!options.lengths.empty() && options.lengths.size() != graphs.indices.size()) {
        throw Error("length: must hold one number per edge (" + std::to_string(graphs.indices.size()) + "), got " +
                    std::to_string(options.lengths.size()));
    }
    if (options.k && *options.k < 1) {
        throw Error("k: must be at least 1");
    }
    const auto write = [&](std::size_t p, std::span<const double> sum) {
        const auto first = static_cast<std::size_t>(graphs.pool_offsets[p]);
        write_centrality(sum, options, centrality.subspan(first, sum.size()));
    };
    const std::vector<Task> tasks = tasks_of(graphs, options);
    std::vector<std::vector<double>> parts(tasks.size());  // the sums of pools that have several tasks
    parallel_for(
        tasks.size(), options.threads, 1, [] { return Reused<Workspace>(); },
        [&](Reused<Workspace>& space, std::size_t t) {
            const PoolEdges pool = checked_pool(graphs, tasks[t].pool);
            const auto own = [&](std::span<const double> all) {
                return all.empty() ? all : all.subspan(static_cast<std::size_t>(pool.indptr[0]), pool.edges());
            };
            add_sources(*space, pool, tasks[t], own(options.lengths), options);
            if (tasks[t].whole) {
                write(tasks[t].pool, space->sum);
            } else {
                parts[t] = space->sum;
            }
        });
    for (std::size_t t = 0; t < tasks.size(); ++t) {
        if (tasks[t].first == 0 && !parts[t].empty()) {
            std::vector<double> sum = std::move(parts[t]);
            for (std::size_t u = t + 1; u < tasks.size() && tasks[u].pool == tasks[t].pool; ++u) {
                std::transform(sum.begin(), sum.end(), parts[u].begin(), sum.begin(), std::plus<>());
            }
            write(tasks[t].pool, sum);
        }
    }
}

}  // namespace pyfast
