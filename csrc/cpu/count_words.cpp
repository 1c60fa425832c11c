#include "pyfast/count_words.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string_view>

#include "checked_offsets.hpp"
#include "pyfast/error.hpp"

namespace pyfast {

namespace {

struct Character {
    std::uint32_t code;
    std::size_t bytes;
};

// The character that begins at `at`. A byte that begins no character counts as a character that no table has.
Character character_at(std::span<const std::uint8_t> text, std::size_t at) {
    constexpr Character none{std::numeric_limits<std::uint32_t>::max(), 1};
    const std::uint32_t first = text[at];
    if (first < 0x80) {
        return {first, 1};
    }
    const std::size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    if (first < 0xC0 || first >= 0xF8 || bytes > text.size() - at) {
        return none;
    }
    std::uint32_t code = first & (0x7FU >> bytes);
    for (std::size_t k = 1; k < bytes; ++k) {
        const std::uint32_t next = text[at + k];
        if ((next & 0xC0U) != 0x80) {
            return none;
        }
        code = code << 6 | (next & 0x3FU);
    }
    constexpr std::uint32_t least[] = {0x80, 0x800, 0x10000};  // smaller code points have a shorter form
    return code < least[bytes - 2] ? none : Character{code, bytes};
}

// The distinct words, numbered in the order in which they first occur.
class Vocabulary {
  public:
    std::size_t number(std::string_view word) {
        if (2 * (size() + 1) > slots_.size()) {
            grow();
        }
        const std::uint64_t hash = hash_of(word);
        std::size_t at = hash & (slots_.size() - 1);
        for (; slots_[at].word != 0; at = (at + 1) & (slots_.size() - 1)) {
            if (slots_[at].hash == hash && (*this)[slots_[at].word - 1] == word) {
                return slots_[at].word - 1;
            }
        }
        words_.bytes.append(word);
        words_.end_text();
        slots_[at] = {hash, size()};
        return size() - 1;
    }

    [[nodiscard]] std::size_t size() const { return words_.offsets.size() - 1; }
    [[nodiscard]] std::string_view operator[](std::size_t word) const {
        const auto first = static_cast<std::size_t>(words_.offsets[word]);
        return {words_.bytes.data() + first, static_cast<std::size_t>(words_.offsets[word + 1]) - first};
    }

  private:
    struct Slot {
        std::uint64_t hash = 0;
        std::size_t word = 0;  // its number + 1; 0: none
    };

    // The seed is random, so that nobody can write texts whose words all collide.
    [[nodiscard]] std::uint64_t hash_of(std::string_view word) const {
        constexpr std::uint64_t factor = 0x9E3779B97F4A7C15U;
        std::uint64_t hash = seed_ ^ word.size();
        for (std::size_t at = 0; at < word.size(); at += sizeof(std::uint64_t)) {
            std::uint64_t some = 0;
            std::memcpy(&some, word.data() + at, std::min(sizeof some, word.size() - at));
            hash = (hash ^ some) * factor;
            hash ^= hash >> 32;
        }
        return hash;
    }

    void grow() {
        std::vector<Slot> before(std::max<std::size_t>(2 * slots_.size(), 1024));
        before.swap(slots_);
        for (const Slot& slot : before) {
            if (slot.word != 0) {
                std::size_t at = slot.hash & (slots_.size() - 1);
                while (slots_[at].word != 0) {
                    at = (at + 1) & (slots_.size() - 1);
                }
                slots_[at] = slot;
            }
        }
    }

    std::uint64_t seed_ = std::uint64_t{std::random_device{}()} << 32 | std::random_device{}();
    Texts words_;
    std::vector<Slot> slots_;
};

bool is_digit(std::uint32_t code) { return code >= '0' && code <= '9'; }
bool is_point(std::uint32_t code) { return code == '.' || code == ','; }

// Calls body(word) for each word of a text.
template <class Body>
void for_each_word(std::span<const std::uint8_t> text, std::span<const std::uint8_t> in_words,
                   std::int64_t shortest, const Body& body) {
    std::size_t first = 0;
    std::int64_t characters = 0;       // of the word that begins at `first`
    bool of_number = false;            // whether it follows a point, after a digit that does not stand alone
    bool of_word = false;              // whether it follows a word and an apostrophe
    std::uint32_t before[2] = {0, 0};  // the two characters before, the last one first
    bool word_before = false;          // whether before[1] is in a word
    bool word_earlier = false;         // whether the character before before[1] is in a word
    std::uint8_t last = 0;             // the kind of before[0]
    const auto kind_of = [&](std::uint32_t code) {
        return code < in_words.size() ? in_words[code] : std::uint8_t{0};
    };
    const auto stands_alone = [&](std::size_t end) {
        const bool goes_on = text.size() - end > 2 && is_point(text[end]) && is_digit(text[end + 1]) &&
                             kind_of(character_at(text, end + 2).code) != 0;
        return is_digit(text[first]) ? !of_number && !goes_on && !of_word : !of_word;
    };
    const auto end_word = [&](std::size_t end) {
        if (characters > 0 && (characters >= shortest || stands_alone(end))) {
            body(std::string_view(reinterpret_cast<const char*>(text.data()) + first, end - first));
        }
        characters = 0;
    };
    for (std::size_t at = 0; at < text.size();) {
        const auto [code, bytes] = character_at(text, at);
        const std::uint8_t kind = kind_of(code);
        if (kind == 0) {
            end_word(at);
        } else if (characters > 0) {
            ++characters;
        } else if (kind == 1) {  // A mark begins no word.
            first = at;
            characters = 1;
            of_number = is_point(before[0]) && is_digit(before[1]) && word_earlier;
            of_word = (before[0] == '\'' || before[0] == 0x2019) && word_before;
        }
        word_earlier = word_before;
        word_before = last != 0;
        last = kind;
        before[1] = before[0];
        before[0] = code;
        at += bytes;
    }
    end_word(text.size());
}

// Renumbers the words by the order of their bytes, and sorts those of each text.
void put_in_order(const Vocabulary& found, WordCounts& out) {
    std::vector<std::size_t> order(found.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return found[a] < found[b]; });
    std::vector<std::uint64_t> rank(found.size());
    for (std::size_t k = 0; k < order.size(); ++k) {
        rank[order[k]] = k;
        out.vocabulary.bytes.append(found[order[k]]);
        out.vocabulary.end_text();
    }
    std::vector<std::uint64_t> row;
    for (std::size_t t = 0; t + 1 < out.offsets.size(); ++t) {
        const auto first = static_cast<std::size_t>(out.offsets[t]);
        row.clear();
        for (std::size_t e = first; e < static_cast<std::size_t>(out.offsets[t + 1]); ++e) {
            row.push_back(rank[static_cast<std::size_t>(out.words[e])] << 32 |
                          static_cast<std::uint64_t>(out.counts[e]));
        }
        std::sort(row.begin(), row.end());
        for (std::size_t k = 0; k < row.size(); ++k) {
            out.words[first + k] = static_cast<std::int32_t>(row[k] >> 32);
            out.counts[first + k] = static_cast<std::int32_t>(row[k] & 0xFFFFFFFFU);
        }
    }
}

}  // namespace

WordCounts count_words(const Ragged<std::uint8_t>& texts, std::span<const std::uint8_t> in_words,
                       std::int64_t shortest) {
    constexpr std::size_t most = std::numeric_limits<std::int32_t>::max();
    const auto offsets = checked_offsets(texts.offsets, texts.values.size(), "texts");
    WordCounts out;
    Vocabulary found;
    std::vector<std::size_t> last;  // of each word, the entry after its last one
    for (std::size_t t = 0; t + 1 < offsets.size(); ++t) {
        const auto begin = static_cast<std::size_t>(offsets[t]);
        const auto size = static_cast<std::size_t>(offsets[t + 1]) - begin;
        if (size > most) {
            throw Error("texts: a text is larger than 2 GB");
        }
        const std::size_t first = out.words.size();
        for_each_word(texts.values.subspan(begin, size), in_words, shortest, [&](std::string_view word) {
            const std::size_t number = found.number(word);
            if (number >= most) {
                throw Error("texts: more than 2,147,483,647 distinct words");
            }
            last.resize(found.size());
            if (last[number] > first) {
                ++out.counts[last[number] - 1];
            } else {
                out.words.push_back(static_cast<std::int32_t>(number));
                out.counts.push_back(1);
                last[number] = out.words.size();
            }
        });
        out.offsets.push_back(static_cast<std::int64_t>(out.words.size()));
    }
    put_in_order(found, out);
    return out;
}

}  // namespace pyfast
