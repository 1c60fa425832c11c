#include "pyfast/maxsim.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "aligned.hpp"
#include "checked_offsets.hpp"
#include "maxsim_rows.hpp"
#include "parallel.hpp"
#include "pyfast/error.hpp"

namespace pyfast {

namespace {

using maxsim_rows::lanes;

constexpr std::int64_t most_dimensions = 65536;

std::size_t rounded(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

// The data that each pair reads.
struct Problem {
    std::span<const float> queries;
    std::vector<std::int64_t> query_offsets;
    TokenVectors documents;
    std::size_t dimensions;
    MaxsimLevel level;

    [[nodiscard]] bool coded() const { return !documents.codes.empty() || !documents.scales.empty(); }
    [[nodiscard]] std::size_t width() const { return rounded(dimensions, 4); }  // bytes of a token's codes
};

// The tokens of a query, one in each lane.
struct Packed {
    Aligned<float> numbers;
    Aligned<std::int8_t> codes;
    Aligned<std::int32_t> shift;
    std::size_t tokens = 0;
    std::size_t tiles = 0;
};

Packed pack(const Problem& problem, std::size_t query) {
    const auto first = static_cast<std::size_t>(problem.query_offsets[query]);
    const std::size_t dimensions = problem.dimensions;
    Packed packed;
    packed.tokens = static_cast<std::size_t>(problem.query_offsets[query + 1]) - first;
    packed.tiles = (packed.tokens + lanes - 1) / lanes;
    if (problem.coded()) {
        packed.codes.resize(packed.tiles * lanes * problem.width());
        packed.shift.resize(packed.tiles * lanes);
    } else {
        packed.numbers.resize(packed.tiles * lanes * dimensions);
    }
    std::vector<std::int8_t> row(problem.width());
    for (std::size_t t = 0; t < packed.tokens; ++t) {
        const auto token = problem.queries.subspan((first + t) * dimensions, dimensions);
        if (!std::isfinite(maxsim_rows::magnitude(token.data(), dimensions))) {
            throw Error("queries: a number is infinite or NaN");
        }
        const std::size_t tile = t / lanes;
        const std::size_t lane = t % lanes;
        if (!problem.coded()) {
            for (std::size_t d = 0; d < dimensions; ++d) {
                packed.numbers[(tile * dimensions + d) * lanes + lane] = token[d];
            }
            continue;
        }
        packed.shift[t] = -128 * maxsim_rows::round(token.data(), dimensions, row.data());
        for (std::size_t g = 0; g < problem.width() / 4; ++g) {
            std::memcpy(packed.codes.data() + (tile * problem.width() + 4 * g) * lanes + 4 * lane,
                        row.data() + 4 * g, 4);
        }
    }
    return packed;
}

// The memory of a thread.
struct Workspace {
    Aligned<std::uint8_t> codes;
    std::vector<float> scales;
    std::vector<std::int32_t> chosen;
    std::vector<float> best;
};

struct Tokens {
    std::size_t first;
    std::size_t count;
};

Tokens tokens_of(const Problem& problem, std::int64_t document) {
    const auto offsets = problem.documents.offsets;
    const std::size_t size = problem.coded() ? problem.documents.codes.size() : problem.documents.numbers.size();
    const std::size_t tokens = problem.dimensions == 0 ? 0 : size / problem.dimensions;
    if (document < 0 || document >= std::ssize(offsets) - 1) {
        throw Error("pairs: there is no document " + std::to_string(document) +
                    "; number of documents: " + std::to_string(std::ssize(offsets) - 1));
    }
    const std::int64_t first = offsets[static_cast<std::size_t>(document)];
    const std::int64_t last = offsets[static_cast<std::size_t>(document) + 1];
    if (first < 0 || last < first || last > static_cast<std::int64_t>(tokens) ||
        last - first > std::numeric_limits<std::int32_t>::max() / 2) {
        throw Error("token_offsets: document " + std::to_string(document) + " starts at " + std::to_string(first) +
                    " and ends at " + std::to_string(last) + "; number of tokens: " + std::to_string(tokens));
    }
    return {static_cast<std::size_t>(first), static_cast<std::size_t>(last - first)};
}

double score_codes(const Problem& problem, std::size_t query, const Packed& packed, Tokens tokens,
                   Workspace& space) {
    const std::size_t width = problem.width();
    const std::size_t dimensions = problem.dimensions;
    const std::size_t whole = rounded(tokens.count, maxsim_rows::block);
    space.codes.resize(std::max(space.codes.size(), whole * width));
    space.scales.assign(whole, std::numeric_limits<float>::quiet_NaN());
    for (std::size_t t = 0; t < tokens.count; ++t) {
        space.scales[t] = problem.documents.scales[tokens.first + t];
        if (!(space.scales[t] >= 0.0f && std::isfinite(space.scales[t]))) {
            throw Error("scales: a number is negative, infinite or NaN");
        }
        maxsim_rows::shift(problem.documents.codes.data() + (tokens.first + t) * dimensions, dimensions,
                           space.codes.data() + t * width);
    }
    space.chosen.resize(packed.tiles * lanes);
    maxsim_rows::choose(problem.level,
                        {packed.codes.data(), packed.shift.data(), packed.tiles, width / 4, space.codes.data(),
                         space.scales.data(), whole},
                        space.chosen.data());
    space.best.resize(packed.tokens);
    const auto first = static_cast<std::size_t>(problem.query_offsets[query]);
    maxsim_rows::multiply(problem.level,
                          {problem.queries.data() + first * dimensions, packed.tokens, dimensions,
                           space.codes.data(), width, space.chosen.data()},
                          space.best.data());
    double score = 0.0;
    for (std::size_t t = 0; t < packed.tokens; ++t) {
        const auto place = static_cast<std::size_t>(space.chosen[t]);
        score += static_cast<double>(space.best[t] * space.scales[place]);
    }
    return score;
}

double score_numbers(const Problem& problem, const Packed& packed, Tokens tokens, Workspace& space) {
    space.best.resize(packed.tiles * lanes);
    maxsim_rows::largest(packed.numbers.data(), packed.tiles, problem.dimensions,
                         problem.documents.numbers.data() + tokens.first * problem.dimensions, tokens.count,
                         space.best.data());
    double score = 0.0;
    for (std::size_t t = 0; t < packed.tokens; ++t) {
        score += static_cast<double>(space.best[t]);
    }
    return score;
}

void check(std::span<const float> queries, const TokenVectors& documents, std::span<const std::int64_t> pairs,
           const MaxsimOptions& options, std::span<float> scores) {
    if (options.dimensions < 1 || options.dimensions > most_dimensions) {
        throw Error("dimensions: must be from 1 to 65536");
    }
    const auto dimensions = static_cast<std::size_t>(options.dimensions);
    if (queries.size() % dimensions != 0) {
        throw Error("queries: must hold `dimensions` numbers per token");
    }
    if (!documents.numbers.empty() && !documents.codes.empty()) {
        throw Error("tokens: must be numbers or codes, not both");
    }
    if (documents.numbers.size() % dimensions != 0 || documents.codes.size() % dimensions != 0) {
        throw Error("tokens: must hold `dimensions` numbers per token");
    }
    if (documents.scales.size() != documents.codes.size() / dimensions) {
        throw Error("scales: must hold one number per token for codes, and none for numbers");
    }
    if (documents.offsets.empty()) {
        throw Error("token_offsets: must hold one more number than there are documents");
    }
    if (pairs.size() != 2 * scores.size()) {
        throw Error("pairs: must hold a query and a document for each score");
    }
    if (options.level != MaxsimLevel::best && !maxsim_rows::has(options.level)) {
        throw Error("level: this processor or this build does not support it");
    }
}

}  // namespace

MaxsimLevel maxsim_level() {
    for (const MaxsimLevel level : {MaxsimLevel::avx512_vnni, MaxsimLevel::avx512, MaxsimLevel::avx2}) {
        if (maxsim_rows::has(level)) {
            return level;
        }
    }
    return MaxsimLevel::portable;
}

void maxsim(std::span<const float> queries, std::span<const std::int64_t> query_offsets,
            const TokenVectors& documents, std::span<const std::int64_t> pairs, const MaxsimOptions& options,
            std::span<float> scores) {
    check(queries, documents, pairs, options, scores);
    const auto dimensions = static_cast<std::size_t>(options.dimensions);
    const Problem problem{queries, checked_offsets(query_offsets, queries.size() / dimensions, "query_offsets"),
                          documents, dimensions,
                          options.level == MaxsimLevel::best ? maxsim_level() : options.level};
    std::vector<Packed> packed(problem.query_offsets.size() - 1);
    parallel_for(
        packed.size(), options.threads, 8, [] { return 0; },
        [&](int, std::size_t query) { packed[query] = pack(problem, query); });
    parallel_for(
        scores.size(), options.threads, 4, [] { return Workspace{}; },
        [&](Workspace& space, std::size_t p) {
            const std::int64_t query = pairs[2 * p];
            if (query < 0 || query >= std::ssize(packed)) {
                throw Error("pairs: there is no query " + std::to_string(query) + " among " +
                            std::to_string(packed.size()));
            }
            const auto q = static_cast<std::size_t>(query);
            const Tokens tokens = tokens_of(problem, pairs[2 * p + 1]);
            if (packed[q].tokens == 0 || tokens.count == 0) {
                scores[p] = packed[q].tokens == 0 ? 0.0f : -std::numeric_limits<float>::infinity();
                return;
            }
            const double score = problem.coded() ? score_codes(problem, q, packed[q], tokens, space)
                                                 : score_numbers(problem, packed[q], tokens, space);
            scores[p] = static_cast<float>(score);
            if (!std::isfinite(scores[p])) {
                throw Error("tokens: a score is infinite or NaN");
            }
        });
}

}  // namespace pyfast
