#include "pyfast/narrate.hpp"

#include <algorithm>
#include <string>
#include <string_view>

#include "checked_offsets.hpp"
#include "multiversion.hpp"
#include "pyfast/error.hpp"

namespace pyfast {

namespace {

// In UTF-8, bytes 10xxxxxx continue a character, and no character starts with them.
bool starts_character(std::uint8_t byte) { return (byte & 0xC0) != 0x80; }

PYFAST_MULTIVERSION std::int64_t count_characters(const std::uint8_t* text, std::size_t n) {
    std::int64_t count = 0;
    for (std::size_t i = 0; i < n; ++i) {
        count += starts_character(text[i]) ? 1 : 0;
    }
    return count;
}

// The number of bytes of the first `characters` characters of a text.
std::size_t prefix(std::string_view text, std::int64_t characters) {
    std::size_t end = 0;
    while (end < text.size() && (characters > 0 || !starts_character(static_cast<std::uint8_t>(text[end])))) {
        characters -= starts_character(static_cast<std::uint8_t>(text[end])) ? 1 : 0;
        ++end;
    }
    return end;
}

}  // namespace

Texts narrate(const Ragged<std::uint8_t>& lines, const Pools& given, std::int64_t characters) {
    const auto offsets = checked_offsets(given.offsets, given.values.size(), "pool_offsets");
    const Pools pools{offsets, given.values};
    if (characters < 0) {
        throw Error("characters: must not be negative");
    }
    Texts out;
    for (std::size_t p = 0; p < pools.size(); ++p) {
        const auto pool = pools[p];
        std::int64_t left = characters;
        for (std::size_t place = 0; place < pool.size(); ++place) {
            const auto line = checked_list(lines, pool[place], "line_offsets, doc_ids");
            const std::string number = std::string("[").append(std::to_string(place + 1)).append("] ");
            const std::string_view text(reinterpret_cast<const char*>(line.data()), line.size());
            const std::int64_t length =
                static_cast<std::int64_t>(number.size()) + count_characters(line.data(), line.size());
            if (length > left && place > 0) {
                break;
            }
            const std::size_t start = out.bytes.size() + (place > 0 ? 1 : 0);
            out.bytes.append(place > 0 ? "\n" : "").append(number).append(text);
            if (length > left) {
                out.bytes.resize(start + prefix(std::string_view(out.bytes).substr(start), left));
                break;
            }
            left -= length + 1;
        }
        out.end_text();
    }
    return out;
}

}  // namespace pyfast
