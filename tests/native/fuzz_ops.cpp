// What each op of pools promises of any result that it gives back.
#include "fuzz_ops.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "fuzz_input.hpp"
#include "pyfast/bm25.hpp"
#include "pyfast/bridge_expand.hpp"
#include "pyfast/bridge_rank.hpp"
#include "pyfast/bridge_select.hpp"
#include "pyfast/evidence_graph.hpp"
#include "pyfast/fuse.hpp"
#include "pyfast/graph_rank.hpp"
#include "pyfast/prune.hpp"
#include "pyfast/select_sentences.hpp"
#include "pyfast/weighted_degree.hpp"

namespace fuzz {

namespace {

pyfast::EdgeWeight edge_weight(Input& in) {
    constexpr pyfast::EdgeWeight all[] = {pyfast::EdgeWeight::sum, pyfast::EdgeWeight::dot,
                                          pyfast::EdgeWeight::min};
    return all[in.below(std::ssize(all))];
}

bool within(std::span<const float> scores, float least, float most) {
    return std::all_of(scores.begin(), scores.end(), [&](float s) { return s >= least && s <= most; });
}

// X transposed, of those entries of it that lie where they should; then perhaps spoilt itself.
struct Transposed {
    Transposed(Input& in, const Problem& q) {
        const pyfast::Forward x = q.forward();
        const std::int64_t terms = std::clamp<std::int64_t>(x.terms, 0, 1 << 16);
        for (std::int64_t t = 0; t < terms; ++t) {
            for (std::int64_t d = 0; d < x.documents(); ++d) {
                const std::int64_t last = std::min(x.offset(d + 1), std::ssize(q.weights));
                for (std::int64_t e = std::max<std::int64_t>(x.offset(d), 0);
                     e < std::min(last, std::ssize(q.indices)); ++e) {
                    if (q.indices[static_cast<std::size_t>(e)] == t) {
                        documents.push_back(static_cast<std::int32_t>(d));
                        weights.push_back(q.weights[static_cast<std::size_t>(e)]);
                        break;
                    }
                }
            }
            indptr.push_back(std::ssize(documents));
        }
        columns = x.documents();
        if (in.one_in(4)) {
            switch (in.below(4)) {
                case 0: in.spoil(indptr); break;
                case 1: in.spoil(documents); break;
                case 2: in.spoil(weights); break;
                default: columns = in.setting(columns);
            }
        }
        indptr.shrink_to_fit();
        documents.shrink_to_fit();
        weights.shrink_to_fit();
    }

    [[nodiscard]] pyfast::Forward view() const { return {indptr, {}, documents, weights, columns}; }

    std::vector<std::int64_t> indptr{0};
    std::vector<std::int32_t> documents;
    std::vector<float> weights;
    std::int64_t columns = 0;
};

// The term counts of a small part; then perhaps spoilt.
struct Counts {
    Counts(Input& in, std::int64_t terms) {
        lengths.resize(static_cast<std::size_t>(in.below(9)));
        const std::int64_t own = in.coin() ? terms : in.below(terms + 1);
        for (std::int64_t t = 0; t < own; ++t) {
            for (std::size_t d = 0; d < lengths.size(); ++d) {
                if (in.coin()) {
                    documents.push_back(static_cast<std::int32_t>(d));
                    counts.push_back(static_cast<std::int32_t>(1 + in.below(5)));
                    lengths[d] += counts.back();
                }
            }
            indptr.push_back(std::ssize(documents));
        }
        if (own < terms) {
            for (std::int64_t t = 0; t < terms; ++t) {
                columns.push_back(static_cast<std::int32_t>(in.below(own + 1) - 1));
            }
        }
        if (in.coin()) {
            deleted.resize(lengths.size());
            std::generate(deleted.begin(), deleted.end(), [&] { return static_cast<std::uint8_t>(in.below(2)); });
        }
        for (std::int64_t times = in.below(4); times > 2; --times) {
            is_spoilt = true;
            switch (in.below(6)) {
                case 0: in.spoil(indptr); break;
                case 1: in.spoil(documents); break;
                case 2: in.spoil(counts); break;
                case 3: in.spoil(lengths); break;
                case 4: in.spoil(columns); break;
                default: in.spoil(deleted);
            }
        }
        documents.shrink_to_fit();
        counts.shrink_to_fit();
        lengths.shrink_to_fit();
    }

    [[nodiscard]] pyfast::TermCounts view() const {
        return {indptr, documents, counts, lengths, columns, deleted};
    }

    std::vector<std::int64_t> indptr{0};
    std::vector<std::int32_t> documents, counts, lengths, columns;
    std::vector<std::uint8_t> deleted;
    bool is_spoilt = false;
};

}  // namespace

void fuzz_bm25(Input& in) {
    const std::int64_t terms = 1 + in.below(12);
    std::vector<Counts> counts;
    std::int64_t documents = 0;
    for (std::int64_t n = in.below(4); n > 0; --n) {
        counts.emplace_back(in, terms);
        documents += std::ssize(counts.back().lengths);
    }
    std::vector<pyfast::TermCounts> parts;
    for (const Counts& part : counts) {
        parts.push_back(part.view());
    }
    Lists<std::int32_t> queries;
    Lists<std::int32_t> allowed;
    for (std::int64_t n = in.below(5); n > 0; --n) {
        std::vector<std::int32_t> query(static_cast<std::size_t>(in.below(6)));
        std::generate(query.begin(), query.end(), [&] { return static_cast<std::int32_t>(in.below(terms)); });
        queries.push(query);
        std::vector<std::int32_t> list;
        for (std::int64_t d = in.below(4); d < documents; d += 1 + in.below(4)) {
            list.push_back(static_cast<std::int32_t>(d));
        }
        allowed.push(list);
    }
    pyfast::Bm25Options options{.k = in.setting(9), .documents = documents, .total_length = 3 * documents};
    options.threads = 1 + static_cast<int>(in.below(2));
    if (in.one_in(4)) {
        options.k1 = static_cast<double>(in.number());
        options.b = static_cast<double>(in.number());
        options.documents = in.setting(documents);
        options.total_length = in.setting(99);
    }
    std::vector<std::int64_t> sizes;
    if (in.one_in(4)) {
        sizes.resize(queries.offsets.size() - (in.one_in(8) ? 0 : 1));
        std::generate(sizes.begin(), sizes.end(), [&] { return in.setting(documents); });
        options.query_documents = options.query_lengths = sizes;
    }
    for (std::int64_t times = in.below(5); times > 2; --times) {
        switch (in.below(4)) {
            case 0: in.spoil(queries.offsets); break;
            case 1: in.spoil(queries.values); break;
            case 2: in.spoil(allowed.offsets); break;
            default: in.spoil(allowed.values);
        }
    }
    std::optional<pyfast::Ragged<std::int32_t>> filter;
    if (in.coin()) {
        filter = allowed.view();
    }
    const pyfast::RankedPools found = bm25(parts, queries.view(), filter, options);
    options.prune_from = 0;
    const pyfast::RankedPools pruned = bm25(parts, queries.view(), filter, options);
    if (std::none_of(counts.begin(), counts.end(), [](const Counts& part) { return part.is_spoilt; })) {
        REQUIRE(pruned.documents == found.documents && pruned.scores == found.scores);
    }
    REQUIRE(found.offsets.size() == queries.offsets.size() && found.documents.size() == found.scores.size());
    REQUIRE(well_formed(found.offsets, found.documents.size()));
    for (std::size_t q = 0; q + 1 < found.offsets.size(); ++q) {
        const auto first = static_cast<std::size_t>(found.offsets[q]);
        const auto last = static_cast<std::size_t>(found.offsets[q + 1]);
        REQUIRE(static_cast<std::int64_t>(last - first) <= options.k);
        for (std::size_t e = first; e < last; ++e) {
            REQUIRE(found.documents[e] >= 0 && found.documents[e] < documents && found.scores[e] > 0.0f);
            REQUIRE(e == first || found.scores[e] < found.scores[e - 1] ||
                    (found.scores[e] == found.scores[e - 1] && found.documents[e] > found.documents[e - 1]));
        }
    }
}

void fuzz_bridge_expand(Input& in) {
    const Problem q(in);
    const Transposed transposed(in, q);
    pyfast::BridgeExpandOptions options{.k = in.setting(9), .threads = q.threads};
    if (in.one_in(4)) {
        options.largest_norm = in.number();
        options.max_entries = in.setting(50);
    }
    const pyfast::RankedPools found =
        bridge_expand(q.forward(), transposed.view(), q.pools.view(), q.questions.view(), options);
    REQUIRE(found.offsets.size() == q.nodes() + 1 && found.documents.size() == found.scores.size());
    REQUIRE(well_formed(found.offsets, found.documents.size()));
    for (std::size_t s = 0; s < q.nodes(); ++s) {
        const auto first = static_cast<std::size_t>(found.offsets[s]);
        const auto last = static_cast<std::size_t>(found.offsets[s + 1]);
        REQUIRE(static_cast<std::int64_t>(last - first) <= options.k);
        for (std::size_t e = first; e < last; ++e) {
            REQUIRE(found.documents[e] >= 0 && found.documents[e] < q.forward().documents());
            REQUIRE(found.documents[e] != q.pools.values[s] && found.scores[e] >= 0.0f);
            REQUIRE(e == first || found.scores[e] <= found.scores[e - 1]);
        }
    }
}

void fuzz_bridge_rank(Input& in) {
    const Problem q(in);
    pyfast::BridgeRankOptions options;
    if (in.one_in(4)) {
        options = {in.setting(9), in.number(), in.number(), in.number(), q.threads};
    }
    std::vector<float> score(in.one_in(32) ? 0 : q.nodes());
    bridge_rank(q.forward(), q.pools.view(), q.semantic, q.questions.view(), options, score);
    REQUIRE(within(score, 0.0f, 1.0f));
}

void fuzz_bridge_select(Input& in) {
    const Problem q(in);
    const float beta = in.number();
    std::vector<float> boosted(in.one_in(32) ? 0 : q.nodes());
    bridge_select(q.forward(), q.pools.view(), q.semantic, q.is_table,
                  {q.cell_offsets, q.cells.offsets, q.cells.values}, beta, boosted);
    for (std::size_t v = 0; v < boosted.size(); ++v) {
        REQUIRE(boosted[v] == q.semantic[v] || boosted[v] == q.semantic[v] + beta);
    }
}

void fuzz_evidence_graph(Input& in) {
    const Problem q(in);
    pyfast::EvidenceGraphOptions options{.weight = edge_weight(in), .threads = q.threads};
    if (in.one_in(8)) {
        options.function = [](float x, float y) { return x - y / 2; };
    }
    options.idf = in.one_in(4) ? pyfast::Idf::pool : pyfast::Idf::corpus;
    if (in.one_in(4)) {
        options.threshold = in.number();
    }
    if (in.one_in(4)) {
        options.top_k = in.setting(9);
    }
    const pyfast::Ragged<std::int32_t> masked = in.coin() ? q.questions.view() : pyfast::Ragged<std::int32_t>{};
    const pyfast::Graph graph = evidence_graph(q.forward(), q.pools.view(), masked, options);
    const auto indptr = graph.indptr.span();
    const auto indices = graph.indices.span();
    REQUIRE(indptr.size() == q.nodes() + 1 && indices.size() == graph.weights.size);
    REQUIRE(well_formed(indptr, indices.size()));
    for (std::size_t p = 0; p + 1 < q.pools.offsets.size(); ++p) {
        const std::int64_t size = q.pools.offsets[p + 1] - q.pools.offsets[p];
        for (std::int64_t v = 0; v < size; ++v) {
            const auto node = static_cast<std::size_t>(q.pools.offsets[p] + v);
            const auto row = indices.subspan(static_cast<std::size_t>(indptr[node]),
                                             static_cast<std::size_t>(indptr[node + 1] - indptr[node]));
            REQUIRE(!options.top_k || std::ssize(row) <= *options.top_k);
            REQUIRE(std::adjacent_find(row.begin(), row.end(), std::greater_equal{}) == row.end());
            REQUIRE(row.empty() || (row.front() >= 0 && row.back() < size));
            REQUIRE(!std::binary_search(row.begin(), row.end(), static_cast<std::int32_t>(v)));
        }
    }
    for (const float weight : graph.weights.span()) {
        REQUIRE(std::isfinite(weight) && weight > options.threshold);
    }
}

void fuzz_graph_rank(Input& in) {
    const Problem q(in);
    const float alpha = in.one_in(8) ? in.number() : 0.85f;
    std::vector<float> score(in.one_in(32) ? 0 : q.semantic.size());
    pyfast::graph_rank(q.semantic, q.structural, q.pools.offsets, alpha, score);
    REQUIRE(within(score, 0.0f, 2.0f));
}

void fuzz_fuse(Input& in) {
    const Problem q(in);
    const std::int64_t k = in.setting(20);
    const pyfast::RankedPools ranked = fuse(q.groups, q.pools.view(), q.semantic, k);
    REQUIRE(ranked.offsets.size() == q.groups.size() && ranked.documents.size() == ranked.scores.size());
    REQUIRE(well_formed(ranked.offsets, ranked.documents.size()));
    REQUIRE(within(ranked.scores, 0.0f, 1.0f));
    for (std::size_t p = 0; p + 1 < ranked.offsets.size(); ++p) {
        const auto first = static_cast<std::ptrdiff_t>(ranked.offsets[p]);
        const auto last = static_cast<std::ptrdiff_t>(ranked.offsets[p + 1]);
        REQUIRE(last - first <= k);
        REQUIRE(std::is_sorted(ranked.scores.begin() + first, ranked.scores.begin() + last, std::greater{}));
        std::vector<std::int32_t> documents(ranked.documents.begin() + first, ranked.documents.begin() + last);
        std::sort(documents.begin(), documents.end());
        REQUIRE(std::adjacent_find(documents.begin(), documents.end()) == documents.end());
    }
}

void fuzz_prune(Input& in) {
    const Problem q(in);
    pyfast::PruneOptions options;
    if (in.coin()) {
        options = {in.setting(9), in.setting(20), in.setting(4)};
    }
    const pyfast::Pruned kept = prune(q.semantic, q.is_table, q.pools.offsets, options);
    REQUIRE(kept.offsets.size() == q.pools.offsets.size() && well_formed(kept.offsets, kept.nodes.size()));
    for (std::size_t p = 0; p + 1 < kept.offsets.size(); ++p) {
        const std::int64_t size = q.pools.offsets[p + 1] - q.pools.offsets[p];
        const std::int64_t stay = kept.offsets[p + 1] - kept.offsets[p];
        REQUIRE(stay >= std::min(size, options.min_nodes) && stay <= std::min(size, options.max_nodes));
        const auto* const first = kept.nodes.data() + kept.offsets[p];
        std::vector<std::int32_t> nodes(first, first + stay);
        std::sort(nodes.begin(), nodes.end());
        REQUIRE(std::adjacent_find(nodes.begin(), nodes.end()) == nodes.end());
        REQUIRE(nodes.empty() || (nodes.front() >= 0 && nodes.back() < size));
    }
}

// Offsets of `lists` lists of `values` values.
static std::vector<std::int64_t> cuts(Input& in, std::int64_t lists, std::int64_t values) {
    std::vector<std::int64_t> offsets{0};
    for (std::int64_t list = 1; list < lists; ++list) {
        offsets.push_back(offsets.back() + in.below(values - offsets.back() + 1));
    }
    if (lists > 0) {
        offsets.push_back(values);
    }
    return offsets;
}

void fuzz_select_sentences(Input& in) {
    const Problem q(in);
    const pyfast::Forward x = q.forward();
    // Its rows: sentences, titles, questions.
    const std::int64_t rows = std::min<std::int64_t>(x.documents(), 4096);
    const std::int64_t pools = rows == 0 ? 0 : 1 + in.below(std::min<std::int64_t>(rows, 3));
    const std::int64_t passages = pools == 0 ? 0 : in.below(rows - pools + 1);
    const std::int64_t sentences = passages == 0 ? 0 : rows - pools - passages;
    auto pool_offsets = cuts(in, pools, passages);
    auto sentence_offsets = cuts(in, passages, sentences);
    std::vector<float> semantic;
    for (std::int64_t i = 0; i < passages; ++i) {
        semantic.push_back(in.number());
    }
    std::vector<std::int64_t> lengths;
    std::vector<std::uint8_t> dependent;
    for (std::int64_t s = 0; s < sentences; ++s) {
        lengths.push_back(in.below(300));
        dependent.push_back(in.coin() ? 1 : 0);
    }
    std::vector<std::int64_t> budgets;
    for (std::int64_t p = 0; p < pools; ++p) {
        budgets.push_back(in.setting(500));
    }
    if (in.one_in(3)) {
        in.spoil(pool_offsets);
        in.spoil(sentence_offsets);
        in.spoil(lengths);
        in.spoil(dependent);
    }
    std::vector<std::uint8_t> kept(in.one_in(32) ? 0 : lengths.size(), 7);
    select_sentences(x, {pool_offsets, sentence_offsets, semantic, lengths, dependent}, budgets, q.threads, kept);
    for (std::size_t p = 0; p < budgets.size(); ++p) {
        const auto begin = static_cast<std::size_t>(sentence_offsets[static_cast<std::size_t>(pool_offsets[p])]);
        const auto end = static_cast<std::size_t>(sentence_offsets[static_cast<std::size_t>(pool_offsets[p + 1])]);
        std::int64_t sum = 0;
        std::int64_t count = 0;
        for (std::size_t s = begin; s < end; ++s) {
            REQUIRE(kept[s] <= 1);
            sum += kept[s] * lengths[s];
            count += kept[s];
        }
        REQUIRE(begin == end || count > 0);
        REQUIRE(sum <= std::max<std::int64_t>(budgets[p], 0) || count == 1 || sum == 0 ||
                std::count(lengths.begin() + static_cast<std::ptrdiff_t>(begin),
                           lengths.begin() + static_cast<std::ptrdiff_t>(end), 0) > 0);
    }
}

void fuzz_weighted_degree(Input& in) {
    const Problem q(in);
    const pyfast::EdgeWeight weight = edge_weight(in);
    pyfast::TermWeight function = nullptr;
    if (in.one_in(4)) {
        function = [](float x, float y) { return 0.5f * x * y; };
    }
    const pyfast::Idf idf = in.one_in(4) ? pyfast::Idf::pool : pyfast::Idf::corpus;
    std::vector<float> degree(in.one_in(32) ? 0 : q.nodes());
    weighted_degree(q.forward(), q.pools.view(), {weight, function, idf, q.threads}, degree);
    const pyfast::Graph graph =
        evidence_graph(q.forward(), q.pools.view(), {}, {.weight = weight, .function = function, .idf = idf});
    for (std::size_t v = 0; v < degree.size(); ++v) {
        double expected = 0.0;
        for (std::int64_t e = graph.indptr.span()[v]; e < graph.indptr.span()[v + 1]; ++e) {
            expected += static_cast<double>(graph.weights.span()[static_cast<std::size_t>(e)]);
        }
        // The edges are sums in float, of products that may fall below what it holds.
        REQUIRE(std::abs(static_cast<double>(degree[v]) - expected) <= 1e-5 * expected + 1e-40);
    }
}

}  // namespace fuzz
