// What the ops that write texts promise of any result that they give back.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "fuzz_input.hpp"
#include "fuzz_ops.hpp"
#include "pyfast/cite.hpp"
#include "pyfast/count_words.hpp"
#include "pyfast/narrate.hpp"

namespace fuzz {

namespace {

std::vector<std::uint8_t> some_bytes(Input& in, std::int64_t most) {
    std::vector<std::uint8_t> out(static_cast<std::size_t>(in.below(most + 1)));
    // ASCII for the most part, what JSON escapes among it, and broken UTF-8.
    std::generate(out.begin(), out.end(), [&] { return static_cast<std::uint8_t>(in.bits(1)); });
    return out;
}

std::string_view text(const pyfast::Texts& texts, std::size_t t) {
    return std::string_view(texts.bytes)
        .substr(static_cast<std::size_t>(texts.offsets[t]),
                static_cast<std::size_t>(texts.offsets[t + 1] - texts.offsets[t]));
}

std::int64_t characters_of(std::string_view text) {
    return std::count_if(text.begin(), text.end(),
                         [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

}  // namespace

void fuzz_cite(Input& in) {
    const auto n = static_cast<std::size_t>(in.below(14));
    std::vector<std::uint8_t> level(n);
    std::vector<std::int32_t> source(n);
    std::vector<std::int64_t> start(n), end(n), byte_start(n), byte_end(n);
    std::vector<std::int64_t> triplets, ordinal, relation_start, tail_start;
    std::vector<std::uint8_t> content = some_bytes(in, 40);
    Lists<std::uint8_t> uris;
    for (std::int64_t documents = in.below(4); documents > 0; --documents) {
        uris.push(some_bytes(in, 6));
    }
    std::vector<std::uint64_t> hashes(uris.offsets.size() - 1);
    std::generate(hashes.begin(), hashes.end(), [&] { return in.bits(8); });
    const auto place = [&] { return in.below(std::ssize(content) + 1); };
    for (std::size_t i = 0; i < n; ++i) {
        level[i] = static_cast<std::uint8_t>(in.below(9));
        source[i] = static_cast<std::int32_t>(in.below(std::ssize(uris.offsets) - 1));
        start[i] = in.setting(99);
        end[i] = in.setting(99);
        std::int64_t cuts[] = {place(), place(), place(), place()};
        std::sort(std::begin(cuts), std::end(cuts));
        byte_start[i] = cuts[0];
        byte_end[i] = cuts[3];
        if (level[i] == static_cast<std::uint8_t>(pyfast::Level::triplet)) {
            triplets.push_back(static_cast<std::int64_t>(i));
            ordinal.push_back(in.setting(99));
            relation_start.push_back(cuts[1]);
            tail_start.push_back(cuts[2]);
        }
    }
    Lists<std::int64_t> cited;
    for (std::int64_t lists = in.below(4); lists > 0; --lists) {
        std::vector<std::int64_t> list(n == 0 ? 0 : static_cast<std::size_t>(in.below(5)));
        std::generate(list.begin(), list.end(), [&] { return in.below(static_cast<std::int64_t>(n)); });
        cited.push(list);
    }
    std::vector<double> scores(cited.values.size());
    std::generate(scores.begin(), scores.end(), [&] { return static_cast<double>(in.number()); });
    for (std::int64_t times = in.below(5); times > 1; --times) {
        switch (in.below(12)) {
            case 0: hashes.push_back(0); break;
            case 1: in.spoil(level); break;
            case 2: in.spoil(source); break;
            case 3: in.spoil(byte_start); break;
            case 4: in.spoil(byte_end); break;
            case 5: in.spoil(triplets); break;
            case 6: in.spoil(relation_start); break;
            case 7: in.spoil(tail_start); break;
            case 8: in.spoil(uris.offsets); break;
            case 9: in.spoil(cited.offsets); break;
            case 10: in.spoil(cited.values); break;
            default: in.spoil(content);
        }
    }
    uris.values.shrink_to_fit();
    content.shrink_to_fit();
    const pyfast::Segments segments{level,   source,         start,      end,    byte_start,  byte_end, triplets,
                                    ordinal, relation_start, tail_start, hashes, uris.view(), content};
    REQUIRE(segment_ids(segments, cited.values).size() == cited.values.size());
    const std::vector<float> numbers(2 * cited.values.size(), 0.5f);
    const std::vector<std::string> names{"score", "\"semantic"};
    const pyfast::Texts listed = list_segments(segments, cited.view(), names, numbers);
    REQUIRE(listed.offsets.size() == cited.offsets.size() && well_formed(listed.offsets, listed.bytes.size()));
    const std::vector<std::int32_t> member_of(cited.values.size(), in.below(3) == 0 ? 1 : 0);
    const std::vector<std::string> members(static_cast<std::size_t>(in.below(3)), "\"a\":1");
    const pyfast::Texts texts = cite(segments, cited.view(), scores, members, member_of);
    REQUIRE(texts.offsets.size() == cited.offsets.size() && well_formed(texts.offsets, texts.bytes.size()));
    for (std::size_t t = 0; t + 1 < texts.offsets.size(); ++t) {
        const std::string_view json = text(texts, t);
        REQUIRE(json.starts_with('[') && json.ends_with(']'));
        REQUIRE(std::none_of(json.begin(), json.end(), [](char c) { return c >= 0 && c < ' '; }));
    }
}

void fuzz_count_words(Input& in) {
    Lists<std::uint8_t> texts;
    for (std::int64_t n = in.below(6); n > 0; --n) {
        texts.push(some_bytes(in, 30));
    }
    std::vector<std::uint8_t> in_words(static_cast<std::size_t>(in.below(300)));
    std::generate(in_words.begin(), in_words.end(), [&] { return static_cast<std::uint8_t>(in.below(3)); });
    const std::int64_t shortest = in.setting(4);
    for (std::int64_t times = in.below(4); times > 1; --times) {
        in.spoil(texts.offsets);
    }
    texts.values.shrink_to_fit();
    const pyfast::WordCounts found = count_words(texts.view(), in_words, shortest);
    REQUIRE(found.offsets.size() == texts.offsets.size() && well_formed(found.offsets, found.words.size()));
    REQUIRE(well_formed(found.vocabulary.offsets, found.vocabulary.bytes.size()));
    REQUIRE(found.counts.size() == found.words.size());
    const auto words = std::ssize(found.vocabulary.offsets) - 1;
    for (std::size_t w = 0; std::cmp_less(w, words); ++w) {
        REQUIRE(characters_of(text(found.vocabulary, w)) >= 1);
        REQUIRE(w == 0 || text(found.vocabulary, w - 1) < text(found.vocabulary, w));
    }
    for (std::size_t t = 0; t + 1 < found.offsets.size(); ++t) {
        for (auto e = static_cast<std::size_t>(found.offsets[t]); std::cmp_less(e, found.offsets[t + 1]); ++e) {
            REQUIRE(found.words[e] >= 0 && found.words[e] < words && found.counts[e] > 0);
            REQUIRE(std::cmp_equal(e, found.offsets[t]) || found.words[e - 1] < found.words[e]);
        }
    }
}

void fuzz_narrate(Input& in) {
    Lists<std::uint8_t> lines;
    for (std::int64_t n = in.below(6); n > 0; --n) {
        lines.push(some_bytes(in, 20));
    }
    Lists<std::int32_t> pools;
    for (std::int64_t n = in.below(5); n > 0; --n) {
        std::vector<std::int32_t> pool(lines.offsets.size() == 1 ? 0 : static_cast<std::size_t>(in.below(6)));
        std::generate(pool.begin(), pool.end(),
                      [&] { return static_cast<std::int32_t>(in.below(std::ssize(lines.offsets) - 1)); });
        pools.push(pool);
    }
    const std::int64_t characters = in.setting(60);
    for (std::int64_t times = in.below(5); times > 1; --times) {
        switch (in.below(4)) {
            case 0: in.spoil(lines.offsets); break;
            case 1: in.spoil(lines.values); break;
            case 2: in.spoil(pools.offsets); break;
            default: in.spoil(pools.values);
        }
    }
    lines.values.shrink_to_fit();
    const pyfast::Texts texts = narrate(lines.view(), pools.view(), characters);
    REQUIRE(texts.offsets.size() == pools.offsets.size() && well_formed(texts.offsets, texts.bytes.size()));
    for (std::size_t t = 0; t + 1 < texts.offsets.size(); ++t) {
        REQUIRE(characters_of(text(texts, t)) <= characters);
    }
}

}  // namespace fuzz
