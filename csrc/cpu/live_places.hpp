// Which places are live: one bit for each, in words. Higher words have one bit for each lower word that is not
// zero, up to a single word.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "pyfast/error.hpp"

namespace pyfast {

// Word is `std::uint64_t`, const or not. Without words, all places are live.
template <class Word>
class LivePlaces {
  public:
    LivePlaces(std::span<Word> words, std::size_t places) : places_(places) {
        if (words.empty()) {
            return;
        }
        std::size_t first = 0;
        for (std::size_t n = places; heights_ == 0 || n > 1; ++heights_) {
            n = words_for(n);
            words_[heights_] = words.subspan(first < words.size() ? first : 0, first + n <= words.size() ? n : 0);
            first += n;
        }
        if (first != words.size()) {
            throw Error("live: must hold " + std::to_string(first) + " words of 64 bits for " +
                        std::to_string(places) + " positions, got " + std::to_string(words.size()));
        }
    }

    static std::size_t words(std::size_t places) {
        std::size_t total = 0;
        std::size_t n = places;
        do {
            n = words_for(n);
            total += n;
        } while (n > 1);
        return total;
    }

    // The first live place from `place` on, or the number of places if there is none.
    [[nodiscard]] std::size_t next(std::size_t place) const {
        if (heights_ == 0 || place >= places_) {
            return place < places_ ? place : places_;
        }
        std::size_t at = place;  // a position among the bits of height h
        for (std::size_t h = 0; h < heights_; ++h) {
            const std::size_t word = at / 64;
            if (word >= words_[h].size()) {
                return places_;
            }
            const std::uint64_t rest = words_[h][word] >> (at % 64);
            if (rest != 0) {
                return descend(h, at + static_cast<std::size_t>(std::countr_zero(rest)));
            }
            at = word + 1;
        }
        return places_;
    }

    // Marks all places live. clear() then removes those that are not.
    void fill() {
        std::size_t n = places_;
        for (std::size_t h = 0; h < heights_; ++h) {
            for (std::size_t w = 0; w < words_[h].size(); ++w) {
                const std::size_t bits = n - w * 64;
                words_[h][w] = bits >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
            }
            n = words_[h].size();
        }
    }

    void clear(std::size_t first, std::size_t last) {
        for (std::size_t h = 0; h < heights_ && first < last; ++h) {
            const std::size_t low = first / 64;
            const std::size_t high = (last - 1) / 64;
            for (std::size_t w = low; w <= high; ++w) {
                std::uint64_t bits = ~std::uint64_t{0};
                bits = w == low ? bits << (first % 64) : bits;
                bits = w == high ? bits & (~std::uint64_t{0} >> (63 - (last - 1) % 64)) : bits;
                words_[h][w] &= ~bits;
            }
            // The words in between are zero now. Those at the ends may not be.
            first = low + (words_[h][low] != 0 ? 1 : 0);
            last = high + (words_[h][high] == 0 ? 1 : 0);
        }
    }

  private:
    static std::size_t words_for(std::size_t bits) { return bits == 0 ? 1 : (bits - 1) / 64 + 1; }

    [[nodiscard]] std::size_t descend(std::size_t h, std::size_t at) const {
        for (; h > 0; --h) {
            if (at >= words_[h - 1].size() || words_[h - 1][at] == 0) {
                throw Error("live: is damaged (a bit stands for an empty word)");
            }
            at = at * 64 + static_cast<std::size_t>(std::countr_zero(words_[h - 1][at]));
        }
        return at < places_ ? at : places_;
    }

    std::array<std::span<Word>, 11> words_;  // 64^11 places are more than 64 bits can count
    std::size_t heights_ = 0;
    std::size_t places_ = 0;
};

}  // namespace pyfast
