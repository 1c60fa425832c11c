// count_words: how often each word is in each text.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pyfast/api.hpp"
#include "pyfast/pools.hpp"
#include "pyfast/texts.hpp"

namespace pyfast {

struct WordCounts {
    Texts vocabulary;                      // the distinct words, in the order of their bytes
    std::vector<std::int64_t> offsets{0};  // text i has the entries offsets[i] .. offsets[i + 1]
    std::vector<std::int32_t> words;       // places in the vocabulary, ascending within a text
    std::vector<std::int32_t> counts;      // at least 1
};

// A word is the longest possible run of characters c with in_words[c] != 0, and begins with a character with
// in_words[c] == 1; characters with other values above 0 are marks. A run of fewer than `shortest` characters is a
// word only if it stands alone: it is neither a digit of a number such as 1.5 or 1,000, nor the end of a word such
// as it's. Characters are code points in UTF-8. Characters beyond `in_words`, and bytes that are not UTF-8, are in
// no word. Time: O(bytes), and sorting the vocabulary. Thread-safe; it runs on one thread. Throws Error for
// malformed texts.
PYFAST_API WordCounts count_words(const Ragged<std::uint8_t>& texts, std::span<const std::uint8_t> in_words,
                                  std::int64_t shortest);

}  // namespace pyfast
