#include "pyfast/eigenvector.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "aligned.hpp"
#include "each_pool.hpp"
#include "multiversion.hpp"
#include "pool_matrix.hpp"

namespace pyfast {

namespace {

constexpr std::int64_t first_steps = 50;   // steps of power iteration before the first basis; most pools take 25
constexpr std::int64_t further_steps = 8;  // steps between two bases
constexpr std::size_t smallest_basis = 16;
constexpr std::size_t largest_basis = 128;
constexpr std::size_t basis_numbers = std::size_t{1} << 22;
constexpr int squarings = 44;  // More squarings would let rounding errors decide between two equal eigenvalues.

struct Workspace {
    PoolMatrix matrix;
    Aligned<double> x;  // padded, like the next two and the basis
    Aligned<double> ax;
    Aligned<double> former;  // a copy of x, while another vector is tried
    Aligned<double> basis;
    Aligned<double> inner;  // A within the basis: rows of its size, rounded up
    Aligned<double> power;  // a power of `inner`
    Aligned<double> square;
    std::vector<double> limit;          // the limit of power iteration within the basis
    std::vector<std::size_t> incoming;  // for each node, the number of edges that lead to it
    std::vector<std::size_t> free;      // nodes without edges, after the nodes before them are removed

    void trim() {
        matrix.trim();
        pyfast::trim(basis);
    }
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

// x = (y + shift x) * scale. Returns ||y - mu x||^2 for the old x.
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

// y += factor x
PYFAST_MULTIVERSION void add(double* y, double factor, const double* x, std::size_t padded) {
    for (std::size_t v = 0; v < padded; v += lanes_of_doubles) {
        Doubles a;
        Doubles b;
        std::memcpy(&a, x + v, sizeof a);
        std::memcpy(&b, y + v, sizeof b);
        b += factor * a;
        std::memcpy(y + v, &b, sizeof b);
    }
}

// The state of the iteration of one pool.
struct Progress {
    std::size_t nodes;
    double tolerance;
    std::int64_t left;  // the number of products that are left
    Stop stop;
    double first_mu = 0.0;
    double mu = 0.0;
    double residual = std::numeric_limits<double>::infinity();  // relative to mu
};

void multiply(Workspace& space, Progress& progress, const double* from) {
    check_stop(progress.stop);
    --progress.left;
    space.matrix.push(from, space.ax.data());
}

// A step of power iteration. mu and residual belong to the old x. Returns false if A x is 0.
bool advance(Workspace& space, Progress& progress) {
    const std::size_t padded = space.matrix.padded();
    multiply(space, progress, space.x.data());
    const auto [yy, xy] = products(space.x.data(), space.ax.data(), padded);
    const double mu = std::sqrt(yy);
    progress.mu = mu;
    if (!(mu > 0.0)) {
        return false;
    }
    progress.first_mu = progress.first_mu > 0.0 ? progress.first_mu : mu;
    const double shift = 0.25 * mu;
    const double norm = std::sqrt(yy + 2.0 * shift * xy + shift * shift);
    const double residual = step(space.x.data(), space.ax.data(), mu, shift, 1.0 / norm, padded);
    progress.residual = std::sqrt(residual) / mu;
    return true;
}

// Arnoldi's method from x: an orthonormal basis of at most `most` vectors, and A within it. Returns their number,
// which is smaller if A leads to no new direction.
std::size_t make_basis(Workspace& space, Progress& progress, std::size_t most) {
    const std::size_t padded = space.matrix.padded();
    space.basis.resize(most * padded);
    const std::size_t stride = rounded_up(most, lanes_of_doubles);
    space.inner.assign(most * stride, 0.0);
    double* const basis = space.basis.data();
    const double start = std::sqrt(products(space.x.data(), space.x.data(), padded).yy);
    std::transform(space.x.begin(), space.x.end(), basis, [&](double number) { return number / start; });
    for (std::size_t size = 1;; ++size) {
        multiply(space, progress, basis + (size - 1) * padded);
        for (int time = 0; time < 2; ++time) {  // the second pass removes the rounding errors of the first
            for (std::size_t j = 0; j < size; ++j) {
                const double along = products(basis + j * padded, space.ax.data(), padded).xy;
                space.inner[j * stride + size - 1] += along;
                add(space.ax.data(), -along, basis + j * padded, padded);
            }
        }
        const double beyond = std::sqrt(products(space.ax.data(), space.ax.data(), padded).yy);
        if (size == most || !(beyond > 1e-14 * progress.mu)) {
            return size;
        }
        space.inner[size * stride + size - 1] = beyond;
        std::transform(space.ax.begin(), space.ax.end(), basis + size * padded,
                       [&](double number) { return number / beyond; });
    }
}

// The limit of power iteration on A + shift I within the basis, from its first vector. Each squaring of the matrix
// doubles the number of steps. Returns false if the result is 0.
bool find_limit(Workspace& space, std::size_t size, std::size_t most, double shift) {
    const std::size_t stride = rounded_up(most, lanes_of_doubles);
    space.power.assign(space.inner.begin(), space.inner.begin() + static_cast<std::ptrdiff_t>(size * stride));
    for (std::size_t i = 0; i < size; ++i) {
        space.power[i * stride + i] += shift;
    }
    space.square.resize(space.power.size());
    space.limit.assign(size, 0.0);
    for (int squared = 0; squared <= squarings; ++squared) {
        double largest = 0.0;
        for (const double number : space.power) {
            largest = std::max(largest, std::abs(number));
        }
        double norm = 0.0;
        for (double& number : space.power) {
            number /= largest;
        }
        for (std::size_t i = 0; i < size; ++i) {
            norm += space.power[i * stride] * space.power[i * stride];
        }
        norm = std::sqrt(norm);
        if (!(norm > 0.0)) {
            return false;  // also if there is a NaN
        }
        double change = 0.0;
        for (std::size_t i = 0; i < size; ++i) {
            const double now = space.power[i * stride] / norm;
            change = std::max(change, std::abs(now - space.limit[i]));
            space.limit[i] = now;
        }
        if (squared > 0 && change < 1e-14) {
            return true;
        }
        for (std::size_t i = 0; i < size; ++i) {
            const std::size_t row = i * stride;
            push_rows(space.power.data(), size, stride, space.power.data() + row, space.square.data() + row);
        }
        space.power.swap(space.square);
    }
    return true;
}

// Moves x to the limit of power iteration within a basis of `most` vectors, and one step further. Keeps the old x
// if that is no better. Returns false if a larger basis cannot help.
bool leap(Workspace& space, Progress& progress, std::size_t most) {
    const std::size_t padded = space.matrix.padded();
    const std::size_t size = make_basis(space, progress, most);
    const bool whole = size < most || size == progress.nodes;
    if (!find_limit(space, size, most, 0.25 * progress.mu)) {
        return !whole;
    }
    space.former = space.x;
    std::fill(space.x.begin(), space.x.end(), 0.0);
    for (std::size_t j = 0; j < size; ++j) {
        add(space.x.data(), space.limit[j], space.basis.data() + j * padded, padded);
    }
    // All entries should have the same sign. Those of the other sign are rounding errors, or have not converged
    // yet.
    std::transform(space.x.begin(), space.x.end(), space.x.begin(),
                   [](double number) { return std::abs(number); });
    const double norm = std::sqrt(products(space.x.data(), space.x.data(), padded).yy);
    std::transform(space.x.begin(), space.x.end(), space.x.begin(), [&](double number) { return number / norm; });
    const Progress before = progress;
    // An eigenvalue below this is within the rounding errors of larger ones. A basis mixes their vectors, but
    // steps do not.
    const double least = 1e-10 * progress.first_mu;
    if (!advance(space, progress) || !(progress.residual < before.residual && progress.mu > least)) {
        progress.mu = before.mu;
        progress.residual = before.residual;
        space.x.swap(space.former);
    }
    return !whole;
}

// Whether the graph has a cycle. Otherwise no eigenvalue is above 0.
bool has_cycle(Workspace& space, const PoolEdges& pool) {
    const std::size_t n = pool.nodes();
    space.incoming.assign(n, 0);
    for (std::size_t v = 0; v < n; ++v) {
        const PoolEdges::Row row = pool.row(v);
        for (std::size_t e = 0; e < row.indices.size(); ++e) {
            if (row.weights[e] > 0.0f) {
                const auto w = static_cast<std::size_t>(row.indices[e]);
                const PoolEdges::Row back = pool.row(w);
                const auto node = static_cast<std::int32_t>(v);
                const auto found = std::lower_bound(back.indices.begin(), back.indices.end(), node);
                if (found != back.indices.end() && *found == node &&
                    back.weights[static_cast<std::size_t>(found - back.indices.begin())] > 0.0f) {
                    return true;  // found at the first edge, if edges lead both ways
                }
                ++space.incoming[w];
            }
        }
    }
    space.free.clear();
    for (std::size_t v = 0; v < n; ++v) {
        if (space.incoming[v] == 0) {
            space.free.push_back(v);
        }
    }
    for (std::size_t at = 0; at < space.free.size(); ++at) {
        const PoolEdges::Row row = pool.row(space.free[at]);
        for (std::size_t e = 0; e < row.indices.size(); ++e) {
            const auto w = static_cast<std::size_t>(row.indices[e]);
            if (row.weights[e] > 0.0f && --space.incoming[w] == 0) {
                space.free.push_back(w);
            }
        }
    }
    return space.free.size() < n;
}

Convergence iterate(Workspace& space, Progress progress) {
    const auto given = [&, most = progress.left](bool converged) {
        return Convergence{most - progress.left, converged};
    };
    const std::size_t room = std::clamp(basis_numbers / space.matrix.padded(), std::size_t{4}, largest_basis);
    const std::size_t largest = std::min(room, progress.nodes);
    std::size_t size = std::min(smallest_basis, largest);
    bool leaps = true;
    std::int64_t steps = first_steps;
    while (progress.left > 0) {
        if (!advance(space, progress)) {
            return given(false);
        }
        if (progress.residual <= progress.tolerance) {
            return given(true);
        }
        if (--steps <= 0 && leaps && progress.left > static_cast<std::int64_t>(size)) {
            leaps = leap(space, progress, size);
            if (progress.residual <= progress.tolerance) {
                return given(true);
            }
            size = std::min(2 * size, largest);
            steps = further_steps;
        }
    }
    return given(false);
}

Convergence solve_pool(Workspace& space, const PoolEdges& pool, const EigenvectorOptions& options,
                       std::span<float> centrality) {
    const std::size_t n = pool.nodes();
    if (!has_cycle(space, pool)) {
        std::fill(centrality.begin(), centrality.end(),
                  static_cast<float>(1.0 / std::sqrt(static_cast<double>(n))));
        return {0, std::none_of(pool.weights.begin(), pool.weights.end(), [](float w) { return w > 0.0f; })};
    }
    space.matrix.read(pool, std::nullopt);
    const std::size_t padded = space.matrix.padded();
    space.x.assign(padded, 0.0);
    std::fill_n(space.x.begin(), n, 1.0 / std::sqrt(static_cast<double>(n)));
    space.ax.assign(padded, 0.0);
    // The rounding error of a sum of n terms: the residual need not fall below it.
    const double rounding = std::numeric_limits<double>::epsilon() * static_cast<double>(n + 16);
    const Progress start{n, std::max(options.tolerance, rounding), options.max_iterations, options.stop};
    const Convergence convergence = iterate(space, start);
    const double norm = std::sqrt(products(space.x.data(), space.x.data(), padded).yy);
    for (std::size_t v = 0; v < n; ++v) {
        centrality[v] = static_cast<float>(space.x[v] / norm);
    }
    return convergence;
}

}  // namespace

std::vector<Convergence> eigenvector(const Graphs& graphs, const EigenvectorOptions& options,
                                     std::span<float> centrality) {
    check_batch(graphs, centrality, "centrality");
    check_iteration(options.tolerance, options.max_iterations);
    std::vector<Convergence> convergence(graphs.size());
    each_pool<Workspace>(graphs, options.threads, [&](Workspace& space, const PoolEdges& pool, std::size_t p) {
        const auto first = static_cast<std::size_t>(graphs.pool_offsets[p]);
        convergence[p] = solve_pool(space, pool, options, centrality.subspan(first, pool.nodes()));
    });
    return convergence;
}

}  // namespace pyfast
