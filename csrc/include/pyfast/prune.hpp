// prune: which nodes of a ranked pool stay in the context.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pyfast/api.hpp"

namespace pyfast {

struct PruneOptions {
    std::int64_t min_nodes = 5;   // the minimum number of nodes that stay, if the pool has them
    std::int64_t max_nodes = 10;  // the maximum number of nodes that stay
    // the minimum number of passages that stay, and of table rows, if the pool has them
    std::int64_t per_kind = 2;
};

struct Pruned {
    std::vector<std::int64_t> offsets;  // P + 1
    std::vector<std::int32_t> nodes;    // positions within the pool, best first
};

// These nodes stay, best first (equal scores: in the order of retrieval): the best `per_kind` passages and table
// rows, the `min_nodes` best nodes, and all others whose score is at least the pool's mean. If these are more than
// `max_nodes`, the first named groups come first. `score` and `is_table` (0: a passage) have one number for each
// node. Time: O(n log n) for a pool of n. Thread-safe; it runs on one thread. Throws Error for bad offsets, arrays
// of other lengths, scores that are not finite, and unless 0 <= min_nodes <= max_nodes, max_nodes >= 1 and
// per_kind >= 0.
PYFAST_API Pruned prune(std::span<const float> score, std::span<const std::uint8_t> is_table,
                        std::span<const std::int64_t> pool_offsets, const PruneOptions& options);

}  // namespace pyfast
