// What the centralities share: their checks, and the loop over the pools of a batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "parallel.hpp"
#include "pyfast/error.hpp"
#include "pyfast/graphs.hpp"
#include "pyfast/iteration.hpp"
#include "reused.hpp"

namespace pyfast {

// Throws Error for malformed offsets, or if `out`, which messages call `name`, does not have one number for each
// node.
inline void check_batch(const Graphs& graphs, std::span<const float> out, const char* name) {
    check_graphs(graphs);
    if (out.size() != graphs.nodes()) {
        throw Error(std::string(name) + ": must hold one number per node (" + std::to_string(graphs.nodes()) +
                    ")");
    }
}

inline void check_iteration(double tolerance, std::int64_t max_iterations) {
    if (!(tolerance >= 0.0)) {
        throw Error("tolerance: must be a number of at least 0");
    }
    if (max_iterations < 1) {
        throw Error("max_iterations: must be at least 1");
    }
}

inline void check_stop(Stop stop) {
    if (stop != nullptr && stop->load(std::memory_order_relaxed)) {
        throw Stopped();
    }
}

// Calls body(workspace, pool, p) for each pool p that has nodes.
template <class Workspace, class Body>
void each_pool(const Graphs& graphs, int threads, const Body& body) {
    parallel_for(
        graphs.size(), threads, 1, [] { return Reused<Workspace>(); },
        [&](Reused<Workspace>& space, std::size_t p) {
            const PoolEdges pool = checked_pool(graphs, p);
            if (pool.nodes() > 0) {
                body(*space, pool, p);
            }
        });
}

}  // namespace pyfast
