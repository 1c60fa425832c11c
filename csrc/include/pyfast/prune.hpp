// prune: which nodes of a ranked pool stay in the context.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pyfast/api.hpp"

namespace pyfast {

struct PruneOptions {
    std::int64_t min_nodes = 5;   // nodes kept at least, where the pool has them
    std::int64_t max_nodes = 10;  // nodes kept at most
    std::int64_t per_kind = 2;    // passages and table rows kept at least, each, where the pool has them
};

struct Pruned {
    std::vector<std::int64_t> offsets;  // P + 1
    std::vector<std::int32_t> nodes;    // positions within the pool, best first
};

// Kept are, best first (ties by retrieval rank): the best `per_kind` passages and table rows (`is_table` tells
// them apart), the `min_nodes` best nodes, and of the others those that score at least the pool's mean; never more
// than `max_nodes`, where the first named come first. `score` and `is_table` (0: a passage) hold a number per
// node. O(n log n) a pool of n. Thread-safe; one thread's work. Throws Error on bad offsets, arrays of other
// lengths, scores that are not finite, and unless 0 <= min_nodes <= max_nodes, max_nodes >= 1 and per_kind >= 0.
PYFAST_API Pruned prune(std::span<const float> score, std::span<const std::uint8_t> is_table,
                        std::span<const std::int64_t> pool_offsets, const PruneOptions& options);

}  // namespace pyfast
