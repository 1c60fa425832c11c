// What each op of graphs promises of any result that it gives back.
#include <algorithm>
#include <cmath>
#include <vector>

#include "fuzz_input.hpp"
#include "fuzz_ops.hpp"
#include "pyfast/betweenness.hpp"
#include "pyfast/eigenvector.hpp"
#include "pyfast/pagerank.hpp"

namespace fuzz {

namespace {

// The graphs of a batch of pools: none, sparse or dense, and then perhaps some numbers of them spoilt.
struct Pools {
    explicit Pools(Input& in) {
        for (std::int64_t p = in.below(5); p > 0; --p) {
            const std::int64_t n = in.below(24);
            const std::int64_t edges = in.below(3) * n / 2;
            for (std::int64_t v = 0; v < n; ++v) {
                std::vector<std::int32_t> row(static_cast<std::size_t>(in.below(edges + 1)));
                std::generate(row.begin(), row.end(), [&] { return static_cast<std::int32_t>(in.below(n)); });
                std::sort(row.begin(), row.end());
                row.erase(std::unique(row.begin(), row.end()), row.end());
                indices.insert(indices.end(), row.begin(), row.end());
                indptr.push_back(static_cast<std::int64_t>(indices.size()));
            }
            offsets.push_back(static_cast<std::int64_t>(indptr.size()) - 1);
        }
        for (std::size_t e = 0; e < indices.size(); ++e) {
            weights.push_back(in.one_in(32) ? in.number() : static_cast<float>(in.bits(1)) / 16.0f);
        }
        for (std::size_t v = 0; v + 1 < indptr.size(); ++v) {
            personalization.push_back(static_cast<float>(in.bits(1)));
        }
        threads = in.one_in(8) ? static_cast<int>(in.setting(4)) : 1;
        for (std::int64_t times = in.below(5); times > 1; --times) {
            switch (in.below(5)) {
                case 0: in.spoil(offsets); break;
                case 1: in.spoil(indptr); break;
                case 2: in.spoil(indices); break;
                case 3: in.spoil(personalization); break;
                default: in.spoil(weights);
            }
        }
        offsets.shrink_to_fit();
        indptr.shrink_to_fit();
        indices.shrink_to_fit();
        weights.shrink_to_fit();
        personalization.shrink_to_fit();
    }

    [[nodiscard]] pyfast::Graphs view() const { return {offsets, indptr, indices, weights}; }
    [[nodiscard]] std::vector<float> room(Input& in) const {
        return std::vector<float>(in.one_in(32) || indptr.empty() ? 0 : indptr.size() - 1);
    }

    std::vector<std::int64_t> offsets{0};
    std::vector<std::int64_t> indptr{0};
    std::vector<std::int32_t> indices;
    std::vector<float> weights;
    std::vector<float> personalization;
    int threads = 1;
};

bool shares(const std::vector<float>& centrality) {
    return std::all_of(centrality.begin(), centrality.end(), [](float c) { return c >= 0.0f && c <= 1.001f; });
}

bool in_time(const std::vector<pyfast::Convergence>& pools, std::int64_t most) {
    return std::all_of(pools.begin(), pools.end(),
                       [&](const pyfast::Convergence& pool) { return pool.iterations <= most; });
}

}  // namespace

void fuzz_betweenness(Input& in) {
    const Pools q(in);
    pyfast::BetweennessOptions options{.threads = q.threads};
    options.length = in.coin() ? pyfast::EdgeLength::inverse : pyfast::EdgeLength::hops;
    std::vector<double> lengths;
    if (in.one_in(4)) {
        for (std::size_t e = 0; e < q.indices.size(); ++e) {
            lengths.push_back(in.one_in(64) ? static_cast<double>(in.number())
                                            : 1.0 + static_cast<double>(in.below(4)));
        }
        options.lengths = lengths;
    }
    if (in.one_in(4)) {
        options.k = in.setting(12);
        options.seed = in.bits(4);
    }
    std::vector<float> centrality = q.room(in);
    betweenness(q.view(), options, centrality);
    // A single source tells nothing of itself.
    REQUIRE(options.k == 1 || shares(centrality));
}

void fuzz_eigenvector(Input& in) {
    const Pools q(in);
    pyfast::EigenvectorOptions options{.threads = q.threads};
    if (in.one_in(4)) {
        // A graph that never converges takes as many products as it is allowed: minutes, of the largest numbers.
        const std::int64_t most = std::min<std::int64_t>(in.setting(500), 20'000);
        options = {static_cast<double>(in.number()), most, q.threads};
    }
    std::vector<float> centrality = q.room(in);
    const std::vector<pyfast::Convergence> pools = eigenvector(q.view(), options, centrality);
    REQUIRE(shares(centrality));
    REQUIRE(in_time(pools, options.max_iterations));
}

void fuzz_pagerank(Input& in) {
    const Pools q(in);
    pyfast::PageRankOptions options{.threads = q.threads};
    if (in.one_in(4)) {
        options = {static_cast<double>(in.number()), static_cast<double>(in.number()), in.setting(50), q.threads};
    }
    const bool personal = in.coin();
    std::vector<float> rank = q.room(in);
    const std::vector<pyfast::Convergence> pools = pagerank(
        q.view(), personal ? std::span<const float>(q.personalization) : std::span<const float>(), options, rank);
    REQUIRE(shares(rank));
    REQUIRE(in_time(pools, options.max_iterations));
}

}  // namespace fuzz
