// Every op of the C++ library, on good and on malformed input, alone and from many threads: to be run under
// sanitizers. Numbers are compared with references by the Python tests; here with what the ops promise.
//
// `pyfast_tests` runs all; `pyfast_tests --read-past-the-end` and `--race` do what a sanitizer must catch.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "centrality_test.hpp"
#include "check.hpp"
#include "gatv2_test.hpp"
#include "pyfast/bm25.hpp"
#include "pyfast/bridge_expand.hpp"
#include "pyfast/bridge_rank.hpp"
#include "pyfast/bridge_select.hpp"
#include "pyfast/cite.hpp"
#include "pyfast/count_words.hpp"
#include "pyfast/error.hpp"
#include "pyfast/evidence_graph.hpp"
#include "pyfast/fuse.hpp"
#include "pyfast/graph_rank.hpp"
#include "pyfast/maxsim.hpp"
#include "pyfast/narrate.hpp"
#include "pyfast/prune.hpp"
#include "pyfast/select_sentences.hpp"
#include "pyfast/weighted_degree.hpp"

void test_hseq_stream();

namespace {

using pyfast::EdgeWeight;
using pyfast::graph_rank;
using pyfast::narrate;
using pyfast::prune;

constexpr EdgeWeight all_weights[] = {EdgeWeight::sum, EdgeWeight::dot, EdgeWeight::min};

// Arrays exactly as large as their contents, so that a sanitizer sees one step too far.
struct Lists {
    std::vector<std::int64_t> offsets{0};
    std::vector<std::int32_t> values;

    void push(const std::vector<std::int32_t>& list) {
        values.insert(values.end(), list.begin(), list.end());
        offsets.push_back(static_cast<std::int64_t>(values.size()));
    }
    void shrink() {
        offsets.shrink_to_fit();
        values.shrink_to_fit();
    }
    [[nodiscard]] pyfast::Ragged<std::int32_t> view() const { return {offsets, values}; }
};

struct Problem {
    std::vector<std::int64_t> indptr{0};
    std::vector<std::int32_t> indices;
    std::vector<float> weights;
    std::int64_t terms = 0;
    Lists pools;
    Lists questions;
    std::vector<float> semantic;
    std::vector<std::uint8_t> is_table;
    std::vector<std::int64_t> value_offsets{0};
    Lists values;
    std::vector<std::int64_t> groups{0};  // pools to be fused

    [[nodiscard]] pyfast::Forward forward() const { return {indptr, {}, indices, weights, terms}; }
    [[nodiscard]] pyfast::Cells cells() const { return {value_offsets, values.offsets, values.values}; }
};

Problem random_problem(const std::vector<int>& sizes, std::int32_t terms, int per_row, unsigned seed) {
    std::mt19937 random(seed);
    const auto below = [&](int n) { return static_cast<std::int32_t>(random() % static_cast<unsigned>(n)); };
    Problem q;
    q.terms = terms;
    const int documents = *std::max_element(sizes.begin(), sizes.end()) + 5;
    for (int d = 0; d < documents; ++d) {
        std::vector<std::int32_t> row;
        for (int e = below(2 * per_row); e > 0; --e) {
            row.push_back(std::min(below(terms), below(terms)));
        }
        std::sort(row.begin(), row.end());
        row.erase(std::unique(row.begin(), row.end()), row.end());
        for (const std::int32_t term : row) {
            q.indices.push_back(term);
            q.weights.push_back(static_cast<float>(below(1000)) / 1000.0f);
        }
        q.indptr.push_back(static_cast<std::int64_t>(q.indices.size()));
        q.values.push({below(terms)});
        q.values.push({below(terms), below(terms)});
        q.value_offsets.push_back(static_cast<std::int64_t>(q.values.offsets.size()) - 1);
    }
    for (const int size : sizes) {
        std::vector<std::int32_t> pool(static_cast<std::size_t>(size));
        std::generate(pool.begin(), pool.end(), [&] { return below(documents); });
        q.pools.push(pool);
        q.questions.push({below(terms), below(terms), below(terms)});
        if (q.pools.offsets.size() % 3 == 0) {
            q.groups.push_back(static_cast<std::int64_t>(q.pools.offsets.size()) - 1);
        }
    }
    q.groups.push_back(static_cast<std::int64_t>(q.pools.offsets.size()) - 1);
    for (std::size_t v = 0; v < q.pools.values.size(); ++v) {
        q.semantic.push_back(static_cast<float>(below(100)));
        q.is_table.push_back(static_cast<std::uint8_t>(below(2)));
    }
    q.indptr.shrink_to_fit();
    q.indices.shrink_to_fit();
    q.weights.shrink_to_fit();
    q.pools.shrink();
    q.questions.shrink();
    q.semantic.shrink_to_fit();
    q.is_table.shrink_to_fit();
    q.value_offsets.shrink_to_fit();
    q.values.shrink();
    q.groups.shrink_to_fit();
    return q;
}

// The forward index alone, transposed.
Problem transpose(const Problem& q) {
    Problem out;
    out.terms = static_cast<std::int64_t>(q.indptr.size()) - 1;
    for (std::int32_t term = 0; term < q.terms; ++term) {
        for (std::int32_t document = 0; document < out.terms; ++document) {
            pyfast::RowMemory memory;
            const pyfast::Row row = pyfast::checked_row(q.forward(), document, memory);
            const auto at = std::lower_bound(row.terms.begin(), row.terms.end(), term);
            if (at != row.terms.end() && *at == term) {
                out.indices.push_back(document);
                out.weights.push_back(row.weights[static_cast<std::size_t>(at - row.terms.begin())]);
            }
        }
        out.indptr.push_back(static_cast<std::int64_t>(out.indices.size()));
    }
    return out;
}

// The results of all ops, one after the other, as numbers that can be compared for equality.
std::vector<double> run_all(const Problem& q, int threads) {
    std::vector<double> out;
    const auto add = [&](const auto& numbers) { out.insert(out.end(), numbers.begin(), numbers.end()); };
    const auto add_ranked = [&](const pyfast::RankedPools& ranked) {
        add(ranked.offsets);
        add(ranked.documents);
        add(ranked.scores);
    };
    const pyfast::Forward x = q.forward();
    const pyfast::Pools pools = q.pools.view();
    std::vector<float> degree(pools.values.size());
    std::vector<float> score(pools.values.size());
    for (const EdgeWeight weight : all_weights) {
        for (const bool masked : {false, true}) {
            for (const std::int64_t k : {0, 3}) {
                pyfast::EvidenceGraphOptions options;
                options.weight = weight;
                options.threads = threads;
                if (k > 0) {
                    options.top_k = k;
                }
                const auto mask = masked ? q.questions.view() : pyfast::Ragged<std::int32_t>{};
                const pyfast::Graph graph = evidence_graph(x, pools, mask, options);
                add(graph.indptr.span());
                add(graph.indices.span());
                add(graph.weights.span());
            }
        }
        weighted_degree(x, pools, {.weight = weight, .threads = threads}, degree);
        add(degree);
    }
    weighted_degree(x, pools, {.idf = pyfast::Idf::pool, .threads = threads}, degree);
    add(degree);
    weighted_degree(x, pools, {.function = [](float a, float b) { return a - b / 2; }, .threads = threads},
                    degree);
    add(degree);
    const Problem transposed = transpose(q);
    add_ranked(bridge_expand(x, transposed.forward(), pools, q.questions.view(), {.k = 3, .threads = threads}));
    bridge_rank(x, pools, q.semantic, q.questions.view(), {.threads = threads}, score);
    add(score);
    bridge_select(x, pools, q.semantic, q.is_table, q.cells(), 0.2f, score);
    add(score);
    graph_rank(q.semantic, degree, pools.offsets, 0.85f, score);
    add(score);
    const pyfast::Pruned pruned = prune(score, q.is_table, pools.offsets, {});
    add(pruned.offsets);
    add(pruned.nodes);
    add_ranked(fuse(q.groups, pools, q.semantic, 20));
    return out;
}

// The degree is the row sum of the graph; the graph is symmetric.
void check_meaning(const Problem& q) {
    for (const EdgeWeight weight : all_weights) {
        pyfast::EvidenceGraphOptions options;
        options.weight = weight;
        const pyfast::Graph graph = evidence_graph(q.forward(), q.pools.view(), {}, options);
        std::vector<float> degree(q.pools.values.size());
        weighted_degree(q.forward(), q.pools.view(), {.weight = weight}, degree);
        const auto weights = graph.weights.span();
        const auto indices = graph.indices.span();
        const auto indptr = graph.indptr.span();
        CHECK(indptr.back() == static_cast<std::int64_t>(weights.size()));
        for (std::size_t p = 0; p + 1 < q.pools.offsets.size(); ++p) {
            const auto first = static_cast<std::size_t>(q.pools.offsets[p]);
            for (std::size_t v = first; v < static_cast<std::size_t>(q.pools.offsets[p + 1]); ++v) {
                double total = 0.0;
                for (auto e = static_cast<std::size_t>(indptr[v]); e < static_cast<std::size_t>(indptr[v + 1]);
                     ++e) {
                    total += static_cast<double>(weights[e]);
                    const auto u = first + static_cast<std::size_t>(indices[e]);
                    const auto row = indices.subspan(static_cast<std::size_t>(indptr[u]),
                                                     static_cast<std::size_t>(indptr[u + 1] - indptr[u]));
                    const auto back =
                        std::lower_bound(row.begin(), row.end(), static_cast<std::int32_t>(v - first));
                    CHECK(back != row.end() && *back == static_cast<std::int32_t>(v - first));
                    CHECK(weights[static_cast<std::size_t>(indptr[u] + (back - row.begin()))] == weights[e]);
                }
                CHECK(std::abs(total - static_cast<double>(degree[v])) <= 1e-5 * total + 1e-9);
            }
        }
    }
}

void check_error(const std::function<void()>& call, const std::string& name) {
    try {
        call();
    } catch (const pyfast::Error& error) {
        if (std::string(error.what()).find(name) != std::string::npos) {
            return;
        }
        std::fprintf(stderr, "expected an error about %s, got: %s\n", name.c_str(), error.what());
        std::exit(1);
    }
    std::fprintf(stderr, "expected an error about %s, got none\n", name.c_str());
    std::exit(1);
}

// Each change to a good problem is refused, and leaves no trace in the next call.
void check_errors() {
    Problem good = random_problem({0, 6, 3, 9}, 60, 12, 3);
    std::size_t document = 0;
    while (good.indptr[document + 1] - good.indptr[document] < 3) {
        ++document;
    }
    const auto begin = static_cast<std::size_t>(good.indptr[document]);
    const auto end = static_cast<std::size_t>(good.indptr[document + 1]);
    // The one that most changes spoil comes last, so that work has started when the error is found.
    good.pools.values.back() = static_cast<std::int32_t>(document);
    const std::vector<double> expected = run_all(good, 1);
    const auto refuse = [&](const char* name, const std::function<void(Problem&)>& change) {
        for (const int threads : {1, 3}) {
            Problem bad = good;
            change(bad);
            check_error([&] { run_all(bad, threads); }, name);
            CHECK(run_all(good, threads) == expected);
        }
    };
    refuse("doc_ids", [](Problem& q) { q.pools.values.back() = -1; });
    refuse("doc_ids", [](Problem& q) { q.pools.values.back() = static_cast<std::int32_t>(q.indptr.size()) - 1; });
    refuse("doc_ids", [](Problem& q) { q.indptr.clear(); });
    refuse("pool_offsets", [](Problem& q) { q.pools.offsets.clear(); });
    refuse("pool_offsets", [](Problem& q) { q.pools.offsets.front() = -1; });
    refuse("pool_offsets", [](Problem& q) { q.pools.offsets.back() += 1; });
    refuse("pool_offsets", [](Problem& q) { std::swap(q.pools.offsets[1], q.pools.offsets[3]); });
    refuse("X", [&](Problem& q) { q.indices[begin] = -1; });
    refuse("X", [&](Problem& q) { q.indices[end - 1] = 60; });
    refuse("X", [&](Problem& q) { q.weights[begin] = std::numeric_limits<float>::quiet_NaN(); });
    refuse("X", [&](Problem& q) { q.weights[begin + 1] = -1.0f; });
    refuse("X", [&](Problem& q) { q.weights[end - 1] = std::numeric_limits<float>::infinity(); });
    refuse("X", [&](Problem& q) { q.weights.pop_back(); });
    refuse("X", [&](Problem& q) { q.indptr[document + 1] = std::numeric_limits<std::int64_t>::max(); });
    refuse("X", [&](Problem& q) { q.indptr[document + 1] = std::numeric_limits<std::int64_t>::min(); });
    refuse("mask_terms", [](Problem& q) { q.questions.offsets.pop_back(); });
    refuse("term 60 is outside", [](Problem& q) { q.questions.values.back() = 60; });
    refuse("term -1 is outside", [](Problem& q) { q.questions.values.back() = -1; });
    refuse("semantic", [](Problem& q) { q.semantic.pop_back(); });
    refuse("semantic", [](Problem& q) { q.semantic.back() = std::numeric_limits<float>::quiet_NaN(); });
    refuse("is_table", [](Problem& q) { q.is_table.pop_back(); });
    refuse("cells.value_offsets", [](Problem& q) { q.value_offsets.pop_back(); });
    refuse("cells.term_offsets", [](Problem& q) { q.values.offsets.back() += 1; });

    const pyfast::Forward x = good.forward();
    const pyfast::Pools pools = good.pools.view();
    std::vector<float> out(pools.values.size());
    const float nan = std::numeric_limits<float>::quiet_NaN();
    check_error([&] { evidence_graph(x, pools, {}, {.threshold = nan}); }, "threshold");
    check_error([&] { evidence_graph(x, pools, {}, {.top_k = 0}); }, "top_k");
    check_error([&] { weighted_degree(x, pools, {}, {}); }, "degree");
    check_error([&] { graph_rank(good.semantic, out, pools.offsets, nan, out); }, "alpha");
    check_error([&] { bridge_rank(x, pools, good.semantic, good.questions.view(), {.damping = 1.0f}, out); },
                "damping");
    check_error([&] { prune(good.semantic, good.is_table, pools.offsets, {.min_nodes = 3, .max_nodes = 2}); },
                "max_nodes");
    CHECK(run_all(good, 2) == expected);
}

// Two sentences of one passage, its title, and a question for what the second says: it stays, the first does not
// fit.
void check_sentences() {
    const std::vector<std::int64_t> indptr{0, 1, 2, 3, 4};
    const std::vector<std::int32_t> indices{0, 1, 0, 1};
    const std::vector<float> weights(4, 1.0f);
    pyfast::Forward x;
    x.indptr64 = indptr;
    x.indices = indices;
    x.weights = weights;
    x.terms = 2;
    const std::vector<std::int64_t> pools{0, 1};
    const std::vector<std::int64_t> cuts{0, 2};
    const std::vector<std::int64_t> lengths{10, 10};
    const std::vector<std::int64_t> budgets{15};
    const std::vector<float> semantic{1.0f};
    const std::vector<std::uint8_t> dependent{0, 0};
    const pyfast::PoolSentences sentences{pools, cuts, semantic, lengths, dependent};
    std::vector<std::uint8_t> kept(2);
    select_sentences(x, sentences, budgets, 1, kept);
    CHECK(kept == (std::vector<std::uint8_t>{0, 1}));
    check_error([&] { select_sentences(x, sentences, {}, 1, kept); }, "budgets");
}

// Rows in any order, with a term twice, with wide ids or weights: the graph is that of the rows in order.
void check_rows_as_they_come() {
    const Problem q = random_problem({0, 6, 3, 9}, 60, 12, 5);
    const pyfast::Graph expected = evidence_graph(q.forward(), q.pools.view(), {}, {});
    for (const bool backwards : {false, true}) {
        std::vector<std::int64_t> indptr{0};
        std::vector<std::int32_t> indices;
        std::vector<float> weights;
        for (std::size_t d = 0; d + 1 < q.indptr.size(); ++d) {
            for (std::int64_t e = q.indptr[d]; e < q.indptr[d + 1]; ++e) {
                const auto at = static_cast<std::size_t>(backwards ? q.indptr[d] + q.indptr[d + 1] - 1 - e : e);
                for (int half = 0; half < (backwards ? 2 : 1); ++half) {
                    indices.push_back(q.indices[at]);
                    weights.push_back(backwards ? q.weights[at] / 2 : q.weights[at]);
                }
            }
            indptr.push_back(std::ssize(indices));
        }
        const std::vector<std::int64_t> wide_indices(indices.begin(), indices.end());
        const std::vector<double> wide_weights(weights.begin(), weights.end());
        for (const bool wide_ids : {false, true}) {
            for (const bool wide : {false, true}) {
                pyfast::Forward x{indptr, {}, {}, {}, q.terms};
                wide_ids ? void(x.indices64 = wide_indices) : void(x.indices = indices);
                wide ? void(x.weights64 = wide_weights) : void(x.weights = weights);
                const pyfast::Graph found = evidence_graph(x, q.pools.view(), {}, {});
                CHECK(std::ranges::equal(found.indices.span(), expected.indices.span()));
                CHECK(std::ranges::equal(found.weights.span(), expected.weights.span()));
            }
        }
    }
}

// Groups that do not fit the pools are refused.
void check_fuse_errors() {
    const Problem good = random_problem({0, 6, 3, 9}, 60, 12, 3);
    const pyfast::Pools pools = good.pools.view();
    for (const std::vector<std::int64_t>& groups :
         std::vector<std::vector<std::int64_t>>{{}, {1, 4}, {0, 5}, {0, 5, 4}}) {
        check_error([&] { fuse(groups, pools, good.semantic, 9); }, "list_offsets");
    }
    check_error([&] { fuse(good.groups, pools, std::span(good.semantic).first(1), 9); }, "semantic");
    check_error([&] { fuse(good.groups, pools, good.semantic, 0); }, "k");
}

// A corpus of one text, one table and one graph, with all its levels; and its lines.
struct Corpus {
    std::string content =
        "One. Two \"2\"1\t2hrt"
        "irt";
    std::string uri_text = "u\nvw";
    std::vector<std::uint8_t> level{0, 2, 3, 3, 4, 5, 6, 6, 5, 0, 7, 8, 8};
    std::vector<std::int32_t> source{0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2};
    std::vector<std::int64_t> start = std::vector<std::int64_t>(13, -1);
    std::vector<std::int64_t> byte_start{0, 0, 0, 5, 12, 12, 12, 13, 15, 15, 15, 15, 18};
    std::vector<std::int64_t> byte_end{12, 12, 4, 12, 15, 15, 13, 15, 15, 21, 21, 18, 21};
    std::vector<std::int64_t> triplets{11, 12};
    std::vector<std::int64_t> ordinal{0, 1};
    std::vector<std::int64_t> relation_start{16, 19};
    std::vector<std::int64_t> tail_start{17, 20};
    std::vector<std::uint64_t> hashes{0xAB, 0xCD, 0xEF};
    std::vector<std::int64_t> uri_offsets{0, 2, 3, 4};

    [[nodiscard]] static std::vector<std::uint8_t> bytes(const std::string& text) {
        return {text.begin(), text.end()};
    }
    [[nodiscard]] std::vector<std::uint64_t> ids(const std::vector<std::int64_t>& which) const {
        const pyfast::Segments segments{.level = level,
                                        .source = source,
                                        .start = start,
                                        .end = start,
                                        .triplets = triplets,
                                        .ordinal = ordinal,
                                        .hashes = hashes};
        return segment_ids(segments, which);
    }
    // The evidence of no segment, of some, and of the others with `extra`.
    std::string cited(std::int64_t extra) const {
        const auto heap = bytes(content);
        const auto uris = bytes(uri_text);
        std::vector<std::int64_t> every(level.size());
        std::iota(every.begin(), every.end(), 0);
        every.push_back(extra);
        const std::vector<std::int64_t> offsets{0, 0, 4, static_cast<std::int64_t>(every.size())};
        const std::vector<double> scores(every.size(), 0.25);
        const pyfast::Segments segments{
            level,   source,         start,      start,  byte_start,          byte_end, triplets,
            ordinal, relation_start, tail_start, hashes, {uri_offsets, uris}, heap};
        return cite(segments, {offsets, every}, scores).bytes;
    }
};

void check_texts() {
    const Corpus good;
    const std::string cited = good.cited(4);
    for (const char* snippet :
         {R"("One.")", R"("Two \"2\"")", R"("1\t 2\n")", R"("h r t; i r t")", R"("i r t")"}) {
        CHECK(cited.find(std::string("\"snippet\":") + snippet + ",\"score\":0.25}") != std::string::npos);
    }
    CHECK(cited.find(R"([][{"segment":"cd87deffc5a3d0fd","uri":"u\n","offsets":[-1,-1],)") == 0);
    CHECK(good.ids({0}) == std::vector<std::uint64_t>{0xcd87deffc5a3d0fdU} && good.ids({}).empty());
    check_error([&] { good.ids({0, 13}); }, "segment 13");
    const auto refuse = [&](const char* name, const std::function<void(Corpus&)>& change, std::int64_t extra = 0) {
        Corpus bad = good;
        change(bad);
        check_error([&] { bad.cited(extra); }, name);
        CHECK(good.cited(4) == cited);
    };
    refuse("segment 13", [](Corpus&) {}, 13);
    refuse("segment -1", [](Corpus&) {}, -1);
    refuse("segments", [](Corpus& c) { c.start.pop_back(); });
    refuse("hashes", [](Corpus& c) { c.hashes.pop_back(); });
    refuse("ordinal", [](Corpus& c) { c.ordinal.pop_back(); });
    refuse("segments", [](Corpus& c) { c.byte_end.pop_back(); });
    refuse("triplets", [](Corpus& c) { c.tail_start.pop_back(); });
    refuse("triplets", [](Corpus& c) { c.triplets[1] = 99; });
    refuse("content", [](Corpus& c) { c.byte_end[12] = 22; });
    refuse("content", [](Corpus& c) { c.byte_start[6] = -1; });
    refuse("content", [](Corpus& c) { c.relation_start[1] = std::numeric_limits<std::int64_t>::max(); });
    refuse("content", [](Corpus& c) { c.content.pop_back(); });
    refuse("uri_offsets", [](Corpus& c) { c.uri_offsets.back() = 5; });
    refuse("uri_offsets", [](Corpus& c) { c.source[0] = 3; });
    refuse("uri_offsets", [](Corpus& c) { c.source[0] = -1; });

    const auto text = Corpus::bytes("a\xC3\xA9zwei");
    const std::vector<std::int64_t> offsets{0, 3, 7};
    const std::vector<std::int64_t> pools{0, 0, 2};
    const auto narrated = [&](const std::vector<std::int64_t>& lines, const std::vector<std::int32_t>& documents,
                              std::int64_t characters) {
        return narrate({lines, text}, {pools, documents}, characters).bytes;
    };
    CHECK(narrated(offsets, {0, 1}, 99) == "[1] a\xC3\xA9\n[2] zwei");
    CHECK(narrated(offsets, {0, 1}, 14) == "[1] a\xC3\xA9");
    CHECK(narrated(offsets, {0, 1}, 6) == "[1] a\xC3\xA9");
    CHECK(narrated(offsets, {0, 1}, 5) == "[1] a");
    CHECK(narrated(offsets, {0, 1}, 0).empty());
    check_error([&] { narrated(offsets, {0, 2}, 99); }, "doc_ids");
    check_error([&] { narrated(offsets, {-1, 0}, 99); }, "doc_ids");
    check_error([&] { narrated(offsets, {0, 1, 1}, 99); }, "pool_offsets");
    check_error([&] { narrated(offsets, {0, 1}, -1); }, "characters");
    check_error([&] { narrated({0, 3, 8}, {0, 1}, 99); }, "line_offsets");
    check_error([&] { narrated({0, -3, 7}, {0, 1}, 99); }, "line_offsets");
    check_error([&] { narrated({}, {0, 1}, 99); }, "line_offsets");

    // Letters of ASCII and \u00E9 are in words; a letter must stand alone; \xC3 alone is no character.
    const auto words = Corpus::bytes("    a\xC3\xA9 bb-ab\xC3 bb'c");
    std::vector<std::uint8_t> in_words(256);
    std::fill(in_words.begin() + 'a', in_words.begin() + 'z' + 1, std::uint8_t{1});
    in_words[0xE9] = 1;
    const auto counted = [&](const std::vector<std::int64_t>& given, std::int64_t shortest) {
        return pyfast::count_words({given, words}, in_words, shortest);
    };
    const auto found = counted({0, 7, 7, static_cast<std::int64_t>(words.size())}, 2);
    CHECK(found.vocabulary.bytes == std::string("aba\xC3\xA9") + "bb");
    CHECK((found.vocabulary.offsets == std::vector<std::int64_t>{0, 2, 5, 7}));
    CHECK((found.offsets == std::vector<std::int64_t>{0, 1, 1, 3}));
    CHECK((found.words == std::vector<std::int32_t>{1, 0, 2}));
    CHECK((found.counts == std::vector<std::int32_t>{1, 1, 2}));
    CHECK(counted({0, 7, 7, static_cast<std::int64_t>(words.size())}, 1).words.size() == 4);
    check_error([&] { counted({0, 99}, 2); }, "texts");
    check_error([&] { counted({0, 3, 2}, 2); }, "texts");
}

// Offsets of 32 bits are read as those of 64 are.
void check_narrow_offsets() {
    const Problem q = random_problem({4, 17}, 50, 10, 5);
    const std::vector<std::int32_t> narrow(q.indptr.begin(), q.indptr.end());
    std::vector<float> wide_degree(q.pools.values.size());
    std::vector<float> narrow_degree(q.pools.values.size());
    weighted_degree(q.forward(), q.pools.view(), {}, wide_degree);
    weighted_degree({{}, narrow, q.indices, q.weights, q.terms}, q.pools.view(), {}, narrow_degree);
    CHECK(wide_degree == narrow_degree);
}

// Callers of their own threads, each of which uses some more, on problems of different sizes: the scratch memory
// that is kept from call to call goes from hand to hand.
void check_callers() {
    const Problem problems[] = {random_problem({20, 0, 70}, 300, 20, 7), random_problem({3, 1}, 5000, 40, 8),
                                random_problem({130}, 40, 15, 9)};
    std::vector<std::vector<double>> expected;
    for (const Problem& q : problems) {
        expected.push_back(run_all(q, 1));
    }
    std::vector<std::jthread> callers;
    for (std::size_t caller = 0; caller < 4; ++caller) {
        callers.emplace_back([&, caller] {
            for (std::size_t turn = 0; turn < 6; ++turn) {
                const std::size_t which = (caller + turn) % 3;
                CHECK(run_all(problems[which], 2) == expected[which]);
                Problem bad = problems[which];
                bad.pools.values.back() = -1;
                check_error([&] { run_all(bad, 2); }, "doc_ids");
            }
        });
    }
}

// Above 2,048 documents the rows of a pool are shared among threads.
void check_large_pool() {
    const Problem q = random_problem({3, 2100, 5, 2049}, 3000, 6, 11);
    for (const auto& k : {std::optional<std::int64_t>{}, std::optional<std::int64_t>{4}}) {
        const auto run = [&](int threads) {
            return evidence_graph(q.forward(), q.pools.view(), {}, {.top_k = k, .threads = threads});
        };
        const pyfast::Graph alone = run(1);
        const pyfast::Graph shared = run(4);
        CHECK(alone.indices.size > 2100);
        CHECK(std::ranges::equal(alone.indptr.span(), shared.indptr.span()));
        CHECK(std::ranges::equal(alone.indices.span(), shared.indices.span()));
        CHECK(std::ranges::equal(alone.weights.span(), shared.weights.span()));
    }
}

// What must not pass unnoticed under the sanitizers.
int read_past_the_end() {
    const std::vector<std::int64_t> indptr{0, 20};
    std::vector<std::int32_t> indices(20);
    std::iota(indices.begin(), indices.end(), 0);
    const std::vector<float> weights(19);  // the library must trust the length that it gets
    const pyfast::Forward x{indptr, {}, indices, {weights.data(), 20}, 20};
    pyfast::RowMemory memory;
    return static_cast<int>(pyfast::checked_row(x, 0, memory).weights[0]);
}

int race() {
    const std::vector<float> scores{1.0f, 2.0f};
    const std::vector<std::int64_t> offsets{0, 2};
    std::vector<float> shared(2);
    const auto write = [&] { graph_rank(scores, scores, offsets, 0.5f, shared); };
    const std::jthread one(write);
    const std::jthread other(write);
    return 0;
}

}  // namespace

// Random documents of rare and common terms: pruning changes no bit, with any settings, deletions and parts.
void check_pruned_bm25() {
    std::mt19937 random(11);
    const auto below = [&](std::int32_t limit) {
        return static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(limit));
    };
    constexpr std::array<std::int32_t, 7> every{2000, 300, 2, 3,
                                                50,   2,   4};  // a term is in one document of so many
    for (int round = 0; round < 24; ++round) {
        struct Part {
            std::vector<std::int64_t> indptr{0};
            std::vector<std::int32_t> documents, counts, lengths;
            std::vector<std::uint8_t> deleted;
        };
        std::vector<Part> made(static_cast<std::size_t>(1 + below(3)));
        std::vector<pyfast::TermCounts> parts;
        pyfast::Bm25Options options{.k = 1 + below(12), .threads = 1 + below(2)};
        options.k1 = round % 4 == 1 ? 0.0 : 1.5;
        options.b = round % 4 == 2 ? 0.0 : 0.75;
        for (Part& part : made) {
            const std::int32_t size = 9000 + below(20000);
            part.lengths.assign(static_cast<std::size_t>(size), 0);
            for (const std::int32_t one_in : every) {
                for (std::int32_t d = below(2 * one_in); d < size; d += 1 + below(2 * one_in)) {
                    part.documents.push_back(d);
                    part.counts.push_back(below(40) == 0 ? 1 + below(300) : 1 + below(3));
                    part.lengths[static_cast<std::size_t>(d)] += part.counts.back();
                }
                part.indptr.push_back(std::ssize(part.documents));
            }
            if (round % 2 == 1) {
                part.deleted.resize(part.lengths.size());
                std::generate(part.deleted.begin(), part.deleted.end(),
                              [&] { return static_cast<std::uint8_t>(below(9) == 0); });
            }
            for (std::size_t d = 0; d < part.lengths.size(); ++d) {
                const bool is_live = part.deleted.empty() || part.deleted[d] == 0;
                options.documents += is_live ? 1 : 0;
                options.total_length += is_live ? part.lengths[d] : 0;
            }
            parts.push_back({.indptr = part.indptr,
                             .documents = part.documents,
                             .counts = part.counts,
                             .lengths = part.lengths,
                             .deleted = part.deleted});
        }
        Lists queries;
        queries.push({0, 2, 3});
        queries.push({2, 1, 5, 0, 6, 6, 3, 4});
        queries.push({1, 1, 2, 3, 5});
        queries.push({2, 3});
        options.prune_from = std::numeric_limits<std::int32_t>::max();
        const pyfast::RankedPools whole = bm25(parts, queries.view(), {}, options);
        options.prune_from = 0;
        const pyfast::RankedPools pruned = bm25(parts, queries.view(), {}, options);
        CHECK(pruned.offsets == whole.offsets && pruned.documents == whole.documents &&
              pruned.scores == whole.scores);
    }
}

// Documents of three terms, cut into parts anywhere: what is found does not change, in any number of threads.
void check_bm25() {
    constexpr std::int32_t documents = 20000, terms = 3;
    const auto count = [](std::int32_t d, std::int32_t t) { return (d * 7 + t * 3) % 11 - 6; };
    struct Part {
        std::vector<std::int64_t> indptr{0};
        std::vector<std::int32_t> documents, counts, lengths;
    };
    const auto part_of = [&](std::int32_t from, std::int32_t to) {
        Part part;
        part.lengths.resize(static_cast<std::size_t>(to - from));
        for (std::int32_t t = 0; t < terms; ++t) {
            for (std::int32_t d = from; d < to; ++d) {
                if (count(d, t) > 0) {
                    part.documents.push_back(d - from);
                    part.counts.push_back(count(d, t));
                    part.lengths[static_cast<std::size_t>(d - from)] += count(d, t);
                }
            }
            part.indptr.push_back(std::ssize(part.documents));
        }
        return part;
    };
    Lists queries;
    queries.push({0, 2});
    queries.push({});
    queries.push({1, 1, 7});
    const auto search = [&](const std::vector<std::int32_t>& cuts, int threads) {
        std::vector<Part> parts;
        pyfast::Bm25Options options{.k = 9, .documents = documents, .threads = threads};
        for (std::size_t c = 0; c + 1 < cuts.size(); ++c) {
            parts.push_back(part_of(cuts[c], cuts[c + 1]));
            options.total_length +=
                std::accumulate(parts.back().lengths.begin(), parts.back().lengths.end(), std::int64_t{0});
        }
        std::vector<pyfast::TermCounts> views;
        for (const Part& part : parts) {
            views.push_back({part.indptr, part.documents, part.counts, part.lengths});
        }
        return bm25(views, queries.view(), {}, options);
    };
    const pyfast::RankedPools whole = search({0, documents}, 1);
    CHECK(whole.offsets == (std::vector<std::int64_t>{0, 9, 9, 18}));
    for (const int threads : {1, 2, 5}) {
        const pyfast::RankedPools cut = search({0, 1, 5000, 5000, 17001, documents}, threads);
        CHECK(cut.documents == whole.documents && cut.scores == whole.scores);
    }
    const Part one = part_of(0, documents);
    const std::vector<pyfast::TermCounts> views{{one.indptr, one.documents, one.counts, one.lengths}};
    const std::vector<std::int64_t> sizes(3, documents), few(2, documents), negative(3, -1);
    const std::vector<std::int64_t> lengths(
        3, std::accumulate(one.lengths.begin(), one.lengths.end(), std::int64_t{0}));
    const auto sized = [&](const std::vector<std::int64_t>& of_documents,
                           const std::vector<std::int64_t>& of_lengths) {
        return bm25(views, queries.view(), {},
                    {.k = 9, .query_documents = of_documents, .query_lengths = of_lengths});
    };
    CHECK(sized(sizes, lengths).scores == whole.scores);
    check_error([&] { sized(sizes, few); }, "documents");
    check_error([&] { sized(few, few); }, "documents");
    check_error([&] { sized(sizes, negative); }, "documents");
    check_error([&] { bm25({}, queries.view(), {}, {.k = 0}); }, "k");
    check_error([&] { bm25({}, queries.view(), {}, {.prune_from = -1}); }, "prune_from");
    check_pruned_bm25();
}

void check_maxsim() {
    using pyfast::maxsim;
    using pyfast::TokenVectors;
    // Whole numbers, and a query that 7 bits hold exactly: float32 and codes give the same scores, at every level.
    constexpr std::int64_t dimensions = 67;
    std::mt19937 random(5);
    const auto draw = [&](int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); };
    const std::vector<std::int64_t> query_offsets{0, 4, 4, 9};
    const std::vector<std::int64_t> token_offsets{0, 1, 1, 40, 73};
    std::vector<float> queries(9 * dimensions);
    for (std::size_t i = 0; i < queries.size(); ++i) {
        queries[i] = i % dimensions == 0 ? 63.0f : static_cast<float>(draw(127) - 63);
    }
    std::vector<std::int8_t> codes(73 * dimensions);
    std::generate(codes.begin(), codes.end(), [&] { return static_cast<std::int8_t>(draw(255) - 127); });
    const std::vector<float> numbers(codes.begin(), codes.end());
    const std::vector<float> scales(73, 1.0f);
    std::vector<std::int64_t> pairs;
    for (const std::int64_t query : {0, 1, 2}) {
        for (const std::int64_t document : {3, 0, 1, 2}) {
            pairs.insert(pairs.end(), {query, document});
        }
    }
    const TokenVectors coded{{}, codes, scales, token_offsets};
    const TokenVectors plain{numbers, {}, {}, token_offsets};
    const auto scores = [&](const TokenVectors& documents, int threads) {
        std::vector<float> out(pairs.size() / 2);
        maxsim(queries, query_offsets, documents, pairs, {.dimensions = dimensions, .threads = threads}, out);
        return out;
    };
    const std::vector<float> expected = scores(plain, 1);
    for (const int threads : {1, 2, 5}) {
        CHECK(scores(plain, threads) == expected);
        CHECK(scores(coded, threads) == expected);
    }
    CHECK(std::isinf(expected[2]) && expected[4] == 0.0f);
    pairs.back() = 4;
    check_error([&] { scores(coded, 1); }, "pairs");
}

int main(int count, char** arguments) {
    if (count > 1) {
        return std::strcmp(arguments[1], "--race") == 0 ? race() : read_past_the_end();
    }
    // Around the widths of vectors, and 512, where the graph of a pool changes to one row at a time.
    const std::vector<int> sizes{0, 1, 2, 15, 16, 17, 50, 0, 64, 65, 511, 512, 513};
    const Problem q = random_problem(sizes, 800, 12, 1);
    const std::vector<double> expected = run_all(q, 1);
    CHECK(run_all(q, 2) == expected);
    CHECK(run_all(q, 5) == expected);
    check_meaning(q);
    check_narrow_offsets();
    check_errors();
    check_rows_as_they_come();
    check_sentences();
    check_fuse_errors();
    check_texts();
    check_bm25();
    check_maxsim();
    check_callers();
    check_large_pool();
    test_hseq_stream();
    test_gatv2();
    test_centrality();
    std::puts("passed");
    return 0;
}
