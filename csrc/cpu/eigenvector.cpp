#include "pyfast/eigenvector.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "aligned.hpp"
#include "each_pool.hpp"
#include "multiversion.hpp"
#include "pool_matrix.hpp"

namespace pyfast {

namespace {

struct Workspace {
    PoolMatrix matrix;
    Aligned<double> x;  // padded, as the next
    Aligned<double> ax;

    void trim() { matrix.trim(); }
};

double total(const Doubles& sums) {
    double sum = 0.0;
    for (std::size_t v = 0; v < lanes_of_doubles; ++v) {
        sum += sums[v];
    }
    return sum;
}

struct Products {
    double yy;
    double xy;
};

PYFAST_MULTIVERSION Products products(const double* x, const double* y, std::size_t padded) {
    Doubles yy{};
    Doubles xy{};
    for (std::size_t v = 0; v < padded; v += lanes_of_doubles) {
        Doubles a;
        Doubles b;
        std::memcpy(&a, x + v, sizeof a);
        std::memcpy(&b, y + v, sizeof b);
        yy += b * b;
        xy += a * b;
    }
    return {total(yy), total(xy)};
}

// x = (y + shift x) * scale; gives ||y - mu x||^2 of the x before.
PYFAST_MULTIVERSION double step(double* x, const double* y, double mu, double shift, double scale,
                                std::size_t padded) {
    Doubles residual{};
    for (std::size_t v = 0; v < padded; v += lanes_of_doubles) {
        Doubles a;
        Doubles b;
        std::memcpy(&a, x + v, sizeof a);
        std::memcpy(&b, y + v, sizeof b);
        const Doubles difference = b - mu * a;
        residual += difference * difference;
        a = (b + shift * a) * scale;
        std::memcpy(x + v, &a, sizeof a);
    }
    return total(residual);
}

void solve_pool(Workspace& space, const PoolEdges& pool, const EigenvectorOptions& options,
                std::span<float> centrality) {
    const std::size_t n = pool.nodes();
    space.matrix.read(pool, std::nullopt);
    const std::size_t padded = space.matrix.padded();
    space.x.assign(padded, 0.0);
    std::fill_n(space.x.begin(), n, 1.0 / std::sqrt(static_cast<double>(n)));
    space.ax.assign(padded, 0.0);
    for (std::int64_t iteration = 0; iteration < options.max_iterations; ++iteration) {
        space.matrix.push(space.x.data(), space.ax.data());
        const auto [yy, xy] = products(space.x.data(), space.ax.data(), padded);
        const double mu = std::sqrt(yy);
        if (!(mu > 0.0)) {
            break;
        }
        const double shift = 0.25 * mu;
        const double norm = std::sqrt(yy + 2.0 * shift * xy + shift * shift);
        const double residual = step(space.x.data(), space.ax.data(), mu, shift, 1.0 / norm, padded);
        if (std::sqrt(residual) <= options.tolerance * mu) {
            break;
        }
    }
    const double norm = std::sqrt(products(space.x.data(), space.x.data(), padded).yy);
    for (std::size_t v = 0; v < n; ++v) {
        centrality[v] = static_cast<float>(space.x[v] / norm);
    }
}

}  // namespace

void eigenvector(const Graphs& graphs, const EigenvectorOptions& options, std::span<float> centrality) {
    check_batch(graphs, centrality, "centrality");
    check_iteration(options.tolerance, options.max_iterations);
    each_pool<Workspace>(graphs, options.threads, [&](Workspace& space, const PoolEdges& pool, std::size_t first) {
        solve_pool(space, pool, options, centrality.subspan(first, pool.nodes()));
    });
}

}  // namespace pyfast
