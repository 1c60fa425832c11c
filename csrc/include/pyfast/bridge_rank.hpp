// bridge_rank: ranks a pool's documents by what they share beyond the question's words. (An op of pyfast's own)
#pragma once

#include <cstdint>
#include <span>

#include "pyfast/api.hpp"
#include "pyfast/pools.hpp"

namespace pyfast {

struct BridgeRankOptions {
    std::int64_t edges = 5;  // the number of strongest edges that each node keeps
    float damping = 0.5f;    // the probability that PageRank follows an edge
    float sharpness = 4.0f;  // the exponent of the semantic score in the restart distribution
    float mix = 0.75f;       // the share of PageRank in the result
    int threads = 1;
};

// For each node v of each pool, score[v] in [0, 1]:
//   1. Edge weights: w_ij = (sum over shared terms outside the question of x_it x_jt)^2. An edge stays if it is
//      among the `edges` strongest of either end. If weights are equal, the earlier document comes first.
//   2. Personalised PageRank over these edges. It restarts at v with a probability proportional to
//      sem_v^sharpness. `sem` is the semantic score, min-max normalised over the pool (all equal: 1).
//   3. score = (1 - mix) * sem + mix * rank / max rank.
//
// `semantic` and `score` have one number for each node. `question_terms` has a list of term ids for each pool. A
// pool of n documents takes the time of evidence_graph with `dot` weights, O(n^2) to find the strongest edges, and
// O(n * edges) for each step; damping 1/2 takes about 30 steps. Memory for each thread: O(pool), and 4 to 8 bytes
// for each term of the vocabulary. Thread-safe. The result of a pool depends only on the pool. Throws Error for
// malformed pools, rows or terms, for scores that are not finite, and unless edges >= 1, damping in [0, 0.99], mix
// in [0, 1] and sharpness in [0, 64].
PYFAST_API void bridge_rank(const Forward& x, const Pools& pools, std::span<const float> semantic,
                            const Ragged<std::int32_t>& question_terms, const BridgeRankOptions& options,
                            std::span<float> score);

}  // namespace pyfast
