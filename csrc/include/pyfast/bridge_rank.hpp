// bridge_rank: which documents does a pool's own graph lead to, beyond the question's words? (pyfast's own)
#pragma once

#include <cstdint>
#include <span>

#include "pyfast/api.hpp"
#include "pyfast/pools.hpp"

namespace pyfast {

struct BridgeRankOptions {
    std::int64_t edges = 5;  // strongest edges that a node keeps
    float damping = 0.5f;    // PageRank's probability to follow an edge
    float sharpness = 4.0f;  // power of the semantic score in the restart distribution
    float mix = 0.75f;       // share of the PageRank in the result
    int threads = 1;
};

// score[v] in [0, 1], for every node of every pool:
//  1. weights w_ij = (sum over shared terms outside the question of x_it x_jt)^2: what two documents share
//     beyond the question is the bridge; an edge stays where it is among the `edges` strongest of either end
//     (ties: the earlier document);
//  2. personalised PageRank over them, restarting at v with probability proportional to sem_v^sharpness, where
//     sem is the semantic score min-max normalised over the pool (all equal: 1);
//  3. score = (1 - mix) * sem + mix * rank / max rank.
//
// `semantic` and `score` hold a number per node, `question_terms` a list of term ids per pool. A pool of n
// documents costs its evidence_graph with `dot` weights, O(n^2) to find the strongest edges, and O(n * edges) for
// each of the some 30 steps that damping 1/2 takes; memory is O(pool), and 4 to 8 bytes per term of the
// vocabulary, a thread. Thread-safe; a pool's result depends on nothing but the pool. Throws Error on malformed
// pools, rows or terms, on scores that are not finite, and unless edges >= 1, damping in [0, 0.99], mix in [0, 1],
// sharpness in [0, 64].
PYFAST_API void bridge_rank(const Forward& x, const Pools& pools, std::span<const float> semantic,
                            const Ragged<std::int32_t>& question_terms, const BridgeRankOptions& options,
                            std::span<float> score);

}  // namespace pyfast
