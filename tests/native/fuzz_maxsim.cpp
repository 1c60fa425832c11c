// What maxsim promises of any result that it gives back.
#include <algorithm>
#include <cmath>
#include <vector>

#include "fuzz_input.hpp"
#include "fuzz_ops.hpp"
#include "pyfast/maxsim.hpp"

namespace fuzz {

void fuzz_maxsim(Input& in) {
    const auto dimensions = static_cast<std::size_t>(1 + in.below(40));
    const auto ends = [&](std::int64_t lists, std::int64_t most) {
        std::vector<std::int64_t> offsets{0};
        for (; lists > 0; --lists) {
            offsets.push_back(offsets.back() + in.below(most));
        }
        return offsets;
    };
    std::vector<std::int64_t> query_offsets = ends(1 + in.below(3), 20);
    std::vector<std::int64_t> token_offsets = ends(1 + in.below(4), 30);
    std::vector<float> queries(static_cast<std::size_t>(query_offsets.back()) * dimensions);
    const auto tokens = static_cast<std::size_t>(token_offsets.back());
    const bool coded = in.coin();
    std::vector<float> numbers(coded ? 0 : tokens * dimensions);
    std::vector<std::int8_t> codes(coded ? tokens * dimensions : 0);
    std::vector<float> scales(coded ? tokens : 0);
    const auto small = [&] { return static_cast<float>(in.below(201) - 100) / 16.0f; };
    std::generate(queries.begin(), queries.end(), small);
    std::generate(numbers.begin(), numbers.end(), small);
    std::generate(codes.begin(), codes.end(), [&] { return static_cast<std::int8_t>(in.bits(1)); });
    std::generate(scales.begin(), scales.end(), [&] { return static_cast<float>(in.below(5)); });
    std::vector<std::int64_t> pairs(static_cast<std::size_t>(2 * in.below(6)));
    for (std::size_t i = 0; i < pairs.size(); ++i) {
        pairs[i] = in.below(std::ssize(i % 2 == 0 ? query_offsets : token_offsets) - 1);
    }
    pyfast::MaxsimOptions options;
    options.dimensions = in.one_in(16) ? in.setting(40) : static_cast<std::int64_t>(dimensions);
    options.threads = 1 + static_cast<int>(in.below(2));
    for (std::int64_t times = in.below(5); times > 2; --times) {
        switch (in.below(6)) {
            case 0: in.spoil(query_offsets); break;
            case 1: in.spoil(token_offsets); break;
            case 2: in.spoil(queries); break;
            case 3: in.spoil(numbers); break;
            case 4: in.spoil(scales); break;
            default: in.spoil(pairs);
        }
    }
    for (std::vector<float>* each : {&queries, &numbers, &scales}) {
        each->shrink_to_fit();
    }
    const pyfast::TokenVectors documents{numbers, codes, scales, token_offsets};
    std::vector<float> scores(pairs.size() / 2);
    maxsim(queries, query_offsets, documents, pairs, options, scores);
    for (const float score : scores) {
        REQUIRE(std::isfinite(score) || score < 0.0f);
    }
    // On each of the processor's levels: the same bits.
    for (int level = 0; level <= static_cast<int>(pyfast::maxsim_level()); ++level) {
        options.level = static_cast<pyfast::MaxsimLevel>(level);
        std::vector<float> again(scores.size());
        maxsim(queries, query_offsets, documents, pairs, options, again);
        REQUIRE(again == scores);
    }
}

}  // namespace fuzz
