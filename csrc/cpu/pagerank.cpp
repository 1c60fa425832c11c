#include "pyfast/pagerank.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "multiversion.hpp"
#include "parallel.hpp"
#include "pool_matrix.hpp"
#include "pyfast/error.hpp"
#include "pyfast/pools.hpp"
#include "reused.hpp"

namespace pyfast {

namespace {

struct Workspace {
    PoolMatrix matrix;
    std::vector<double> follow;   // per node: damping / total, 0 where the total is
    std::vector<double> restart;  // padded, as the two that come
    std::vector<double> rank;
    std::vector<double> pushed;
    std::vector<std::size_t> stuck;

    void trim() { matrix.trim(); }
};

// rank = pushed + share * restart; gives the change, added up.
PYFAST_MULTIVERSION double step(double* rank, const double* pushed, const double* restart, double share,
                                std::size_t padded) {
    Doubles changes{};
    for (std::size_t v = 0; v < padded; v += lanes_of_doubles) {
        Doubles before;
        Doubles p;
        Doubles r;
        std::memcpy(&before, rank + v, sizeof before);
        std::memcpy(&p, pushed + v, sizeof p);
        std::memcpy(&r, restart + v, sizeof r);
        const Doubles after = p + share * r;
        const Doubles change = after - before;
        changes += change < 0.0 ? -change : change;
        std::memcpy(rank + v, &after, sizeof after);
    }
    double sum = 0.0;
    for (std::size_t v = 0; v < lanes_of_doubles; ++v) {
        sum += changes[v];
    }
    return sum;
}

void set_restart(std::vector<double>& restart, std::span<const float> personalization, std::size_t n) {
    const double total = std::accumulate(personalization.begin(), personalization.end(), 0.0);
    for (std::size_t v = 0; v < n; ++v) {
        restart[v] =
            total > 0.0 ? static_cast<double>(personalization[v]) / total : 1.0 / static_cast<double>(n);
    }
}

void rank_pool(Workspace& space, const PoolEdges& pool, std::span<const float> personalization,
               const PageRankOptions& options, std::span<float> rank) {
    const std::size_t n = pool.nodes();
    space.follow.resize(n);
    space.stuck.clear();
    for (std::size_t v = 0; v < n; ++v) {
        const auto weights = pool.row(v).weights;
        const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
        space.follow[v] = total > 0.0 ? options.damping / total : 0.0;
        if (!(total > 0.0)) {
            space.stuck.push_back(v);
        }
    }
    space.matrix.read(pool, space.follow);
    const std::size_t padded = space.matrix.padded();
    space.restart.assign(padded, 0.0);
    set_restart(space.restart, personalization, n);
    space.rank = space.restart;
    space.pushed.resize(padded);
    for (std::int64_t iteration = 0; iteration < options.max_iterations; ++iteration) {
        double stuck = 0.0;
        for (const std::size_t v : space.stuck) {
            stuck += space.rank[v];
        }
        space.matrix.push(space.rank.data(), space.pushed.data());
        const double share = 1.0 - options.damping + options.damping * stuck;
        if (step(space.rank.data(), space.pushed.data(), space.restart.data(), share, padded) <=
            options.tolerance) {
            break;
        }
    }
    const double sum = std::accumulate(space.rank.begin(), space.rank.end(), 0.0);
    for (std::size_t v = 0; v < n; ++v) {
        rank[v] = static_cast<float>(space.rank[v] / sum);
    }
}

}  // namespace

void pagerank(const Graphs& graphs, std::span<const float> personalization, const PageRankOptions& options,
              std::span<float> rank) {
    check_graphs(graphs);
    const std::size_t nodes = graphs.nodes();
    if (rank.size() != nodes) {
        throw Error("rank: must hold one number per node (" + std::to_string(nodes) + ")");
    }
    if (!personalization.empty() && personalization.size() != nodes) {
        throw Error("personalization: must hold one number per node (" + std::to_string(nodes) + "), got " +
                    std::to_string(personalization.size()));
    }
    check_finite(personalization, "personalization");
    if (std::any_of(personalization.begin(), personalization.end(), [](float share) { return share < 0.0f; })) {
        throw Error("personalization: must not be negative");
    }
    if (!(options.damping >= 0.0 && options.damping < 1.0)) {
        throw Error("damping: must lie in [0, 1)");
    }
    if (!(options.tolerance >= 0.0)) {
        throw Error("tolerance: must be a number of at least 0");
    }
    if (options.max_iterations < 1) {
        throw Error("max_iterations: must be at least 1");
    }
    parallel_for(
        graphs.size(), options.threads, 1, [] { return Reused<Workspace>(); },
        [&](Reused<Workspace>& space, std::size_t p) {
            const PoolEdges pool = checked_pool(graphs, p);
            if (pool.nodes() == 0) {
                return;
            }
            const auto first = static_cast<std::size_t>(graphs.pool_offsets[p]);
            const auto shares =
                personalization.empty() ? personalization : personalization.subspan(first, pool.nodes());
            rank_pool(*space, pool, shares, options, rank.subspan(first, pool.nodes()));
        });
}

}  // namespace pyfast
