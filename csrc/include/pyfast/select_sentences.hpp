// select_sentences: the sentences of each pool that matter most for its question, within a budget.
#pragma once

#include <cstdint>
#include <span>

#include "pyfast/api.hpp"
#include "pyfast/pools.hpp"

namespace pyfast {

// The pools and their passages. Pool p has the passages pool_offsets[p] .. pool_offsets[p + 1], and passage i has
// the sentences sentence_offsets[i] .. sentence_offsets[i + 1], in the order of the text.
struct PoolSentences {
    std::span<const std::int64_t> pool_offsets;
    std::span<const std::int64_t> sentence_offsets;
    std::span<const float> semantic;        // for each passage: its score
    std::span<const std::int64_t> lengths;  // for each sentence: what it takes of the budget
    std::span<const std::uint8_t>
        dependent;  // for each sentence: 1 if it is hard to understand without the one before
};

// `kept` has 1 for each sentence that is chosen, else 0. `x` has a row of term weights for each sentence, then one
// for the title of each passage, then one for the question of each pool. The value of a sentence is described at
// `pyfast.ops.select_sentences`. Sentences are chosen by their value, the highest first, as long as they fit into
// the budget of their pool. The best sentence is always chosen. A dependent sentence brings the one before it, if
// that one fits too.
//
// Time: O(entries + sentences * passages * terms of a title) for each pool. Thread-safe. Throws Error for
// malformed arrays and for scores that are not finite; `kept` may have been written by then.
PYFAST_API void select_sentences(const Forward& x, const PoolSentences& given,
                                 std::span<const std::int64_t> budgets, int threads, std::span<std::uint8_t> kept);

}  // namespace pyfast
