#include "pyfast/pagerank.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "aligned.hpp"
#include "each_pool.hpp"
#include "multiversion.hpp"
#include "pool_matrix.hpp"
#include "pyfast/error.hpp"
#include "pyfast/pools.hpp"

namespace pyfast {

namespace {

template <class T>
struct Vectors {
    Aligned<T> restart;  // padded, like all three
    Aligned<T> rank;
    Aligned<T> pushed;
};

struct Workspace {
    PoolMatrix matrix;
    std::vector<std::size_t> stuck;
    Vectors<double> fine;
    Vectors<float> rough;

    void trim() { matrix.trim(); }
};

// rank = pushed + share * restart. Returns the sum of the changes.
template <class Vector, class T>
[[gnu::always_inline]] inline T step_of(T* rank, const T* pushed, const T* restart, T share, std::size_t padded) {
    constexpr std::size_t lanes = sizeof(Vector) / sizeof(T);
    Vector changes{};
    for (std::size_t v = 0; v < padded; v += lanes) {
        Vector before;
        Vector p;
        Vector r;
        std::memcpy(&before, rank + v, sizeof before);
        std::memcpy(&p, pushed + v, sizeof p);
        std::memcpy(&r, restart + v, sizeof r);
        const Vector after = p + share * r;
        const Vector change = after - before;
        changes += change < T{0} ? -change : change;
        std::memcpy(rank + v, &after, sizeof after);
    }
    T sum{0};
    for (std::size_t v = 0; v < lanes; ++v) {
        sum += changes[v];
    }
    return sum;
}

PYFAST_MULTIVERSION double step(double* rank, const double* pushed, const double* restart, double share,
                                std::size_t padded) {
    return step_of<Doubles>(rank, pushed, restart, share, padded);
}
PYFAST_MULTIVERSION float step(float* rank, const float* pushed, const float* restart, float share,
                               std::size_t padded) {
    return step_of<Floats>(rank, pushed, restart, share, padded);
}

// Iterates until a step changes at most the tolerance. Rounding may prevent that; then it ends when a step changes
// no less than the step before.
template <class T>
Convergence iterate(const PoolMatrix& matrix, std::span<const std::size_t> stuck, Vectors<T>& vectors, T damping,
                    T tolerance, std::int64_t most, Stop stop) {
    T change = std::numeric_limits<T>::infinity();
    for (std::int64_t steps = 1; steps <= most; ++steps) {
        check_stop(stop);
        T resting{0};
        for (const std::size_t v : stuck) {
            resting += vectors.rank[v];
        }
        matrix.push(vectors.rank.data(), vectors.pushed.data());
        const T before = change;
        change = step(vectors.rank.data(), vectors.pushed.data(), vectors.restart.data(),
                      T{1} - damping + damping * resting, vectors.rank.size());
        if (change <= tolerance || change >= before) {
            constexpr T rounding = 64 * std::numeric_limits<T>::epsilon();
            return {steps, change <= std::max(tolerance, rounding)};
        }
    }
    return {most, false};
}

void set_restart(Aligned<double>& restart, std::span<const float> personalization, std::size_t n) {
    const double total = std::accumulate(personalization.begin(), personalization.end(), 0.0);
    for (std::size_t v = 0; v < n; ++v) {
        restart[v] = total > 0.0 ? static_cast<double>(personalization[v]) / total : 1.0 / static_cast<double>(n);
    }
}

Convergence rank_pool(Workspace& space, const PoolEdges& pool, std::span<const float> personalization,
                      const PageRankOptions& options, std::span<float> rank) {
    const std::size_t n = pool.nodes();
    PoolMatrix& matrix = space.matrix;
    matrix.read(pool, options.damping);
    space.stuck.clear();
    for (std::size_t v = 0; v < n; ++v) {
        if (!(matrix.totals()[v] > 0.0)) {
            space.stuck.push_back(v);
        }
    }
    Vectors<double>& fine = space.fine;
    fine.restart.assign(matrix.padded(), 0.0);
    set_restart(fine.restart, personalization, n);
    fine.rank = fine.restart;
    fine.pushed.assign(fine.rank.size(), 0.0);
    std::int64_t steps = 0;
    constexpr double rough = 3e-7;  // the accuracy that float reaches, in half the time
    if (matrix.dense() && options.tolerance < rough) {
        space.rough.restart.assign(fine.restart.begin(), fine.restart.end());
        space.rough.rank = space.rough.restart;
        space.rough.pushed.assign(space.rough.rank.size(), 0.0f);
        steps = iterate(matrix, space.stuck, space.rough, static_cast<float>(options.damping),
                        static_cast<float>(rough), options.max_iterations, options.stop)
                    .iterations;
        fine.rank.assign(space.rough.rank.begin(), space.rough.rank.end());
    }
    Convergence convergence = iterate(matrix, space.stuck, fine, options.damping, options.tolerance,
                                      options.max_iterations - steps, options.stop);
    convergence.iterations += steps;
    const double sum = std::accumulate(fine.rank.begin(), fine.rank.end(), 0.0);
    for (std::size_t v = 0; v < n; ++v) {
        rank[v] = static_cast<float>(fine.rank[v] / sum);
    }
    return convergence;
}

}  // namespace

std::vector<Convergence> pagerank(const Graphs& graphs, std::span<const float> personalization,
                                  const PageRankOptions& options, std::span<float> rank) {
    check_batch(graphs, rank, "rank");
    const std::size_t nodes = graphs.nodes();
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
    check_iteration(options.tolerance, options.max_iterations);
    std::vector<Convergence> convergence(graphs.size());
    each_pool<Workspace>(graphs, options.threads, [&](Workspace& space, const PoolEdges& pool, std::size_t p) {
        const auto first = static_cast<std::size_t>(graphs.pool_offsets[p]);
        const auto shares =
            personalization.empty() ? personalization : personalization.subspan(first, pool.nodes());
        convergence[p] = rank_pool(space, pool, shares, options, rank.subspan(first, pool.nodes()));
    });
    return convergence;
}

}  // namespace pyfast
