// gatv2 on good and on malformed input: what it promises, for the sanitizers. Numbers are compared with references
// by the Python tests.
#include "gatv2_test.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "pyfast/error.hpp"
#include "pyfast/gatv2.hpp"

namespace {

using pyfast::bfloat16;
using pyfast::Gatv2Gradients;
using pyfast::Gatv2Layer;
using pyfast::Gatv2Options;
using pyfast::Gatv2Sum;

float number(float x) { return x; }
float number(double x) { return static_cast<float>(x); }
float number(bfloat16 x) { return pyfast::widen(x); }
void set(float& to, float x) { to = x; }
void set(double& to, float x) { to = static_cast<double>(x); }
void set(bfloat16& to, float x) { to = pyfast::narrow(x); }

// Arrays exactly as large as their contents, so that a sanitizer sees one step too far.
template <class T>
struct Problem {
    std::vector<T> x_src;
    std::vector<T> x_dst;
    std::vector<T> att;
    std::vector<std::int64_t> indptr{0};
    std::vector<std::int64_t> indices;
    std::int64_t heads;
    std::int64_t channels;
    std::vector<std::uint8_t> mask;
    bool narrow = false;
    std::vector<std::int32_t> narrow_indices;

    Problem(std::size_t nodes, std::int64_t h, std::int64_t c, unsigned seed) : heads(h), channels(c) {
        std::mt19937 random(seed);
        std::uniform_real_distribution<float> real(-2.0f, 2.0f);
        const auto fill = [&](std::vector<T>& x, std::size_t rows) {
            x.resize(rows * static_cast<std::size_t>(h * c));
            for (T& to : x) {
                set(to, real(random));
            }
        };
        fill(x_src, nodes);
        fill(x_dst, nodes);
        fill(att, 1);
        for (std::size_t i = 0; i < nodes; ++i) {
            for (std::size_t k = random() % 6; k > 0; --k) {
                indices.push_back(static_cast<std::int64_t>(random() % nodes));
            }
            indptr.push_back(static_cast<std::int64_t>(indices.size()));
        }
        narrow_indices.assign(indices.begin(), indices.end());
        mask.resize((indices.size() + nodes) * static_cast<std::size_t>(h));
        for (std::uint8_t& keep : mask) {
            keep = random() % 2;
        }
    }
    [[nodiscard]] Gatv2Layer<T> layer() const {
        Gatv2Layer<T> out{{indptr, {}, {}}, x_src, x_dst, att, heads, channels};
        if (narrow) {
            out.graph.indices32 = narrow_indices;
        } else {
            out.graph.indices64 = indices;
        }
        return out;
    }
};

// Everything that both functions give, as numbers; the gradient of y is x_dst.
template <class T>
std::vector<float> run(const Problem<T>& q, Gatv2Options options) {
    const Gatv2Layer<T> layer = q.layer();
    std::vector<T> y(q.x_dst.size());
    std::vector<Gatv2Sum<T>> attention(gatv2_edges(layer.graph, options.self_loops) *
                                       static_cast<std::size_t>(q.heads));
    if (options.masked) {
        options.mask = std::span(q.mask).first(std::min(q.mask.size(), attention.size()));
    }
    gatv2<T>(layer, options, y, attention);
    std::vector<T> x_src(q.x_src.size());
    std::vector<T> x_dst(q.x_dst.size());
    std::vector<T> att(q.att.size());
    gatv2_backward<T>(layer, options, attention, q.x_dst, {x_src, x_dst, att});
    std::vector<T> alone(q.x_src.size());
    gatv2_backward<T>(layer, options, attention, q.x_dst, {alone, {}, {}});
    std::vector<float> out;
    const auto add = [&](const std::vector<T>& numbers) {
        for (const T x : numbers) {
            out.push_back(number(x));
        }
    };
    add(y);
    add(x_src);
    add(x_dst);
    add(att);
    for (std::size_t i = 0; i < alone.size(); ++i) {
        CHECK(number(alone[i]) == number(x_src[i]));
    }
    for (const Gatv2Sum<T> share : attention) {
        CHECK(std::abs(share) <= 1);
        out.push_back(static_cast<float>(share));
    }
    return out;
}

template <class T>
void check_type() {
    // Around the width of a vector; one node, one block of destinations, several.
    for (const std::int64_t channels : {1, 7, 8, 15, 16, 17, 33}) {
        for (const std::size_t nodes : {std::size_t{1}, std::size_t{31}, std::size_t{33}, std::size_t{100}}) {
            Problem<T> q(nodes, 2, channels, static_cast<unsigned>(channels));
            for (const bool loops : {false, true}) {
                Gatv2Options options;
                options.self_loops = loops;
                options.dropout = 0.5;
                options.seed = 9;
                const std::vector<float> expected = run(q, options);
                q.narrow = true;
                CHECK(run(q, options) == expected);
                q.narrow = false;
                options.masked = true;
                CHECK(run(q, options).size() == expected.size());
            }
        }
    }
    // More destinations than sources, and fewer: a loop for each that has a source of its number.
    for (const std::size_t more : {std::size_t{9}, std::size_t{40}}) {
        Problem<T> q(24, 2, 17, 4);
        Problem<T> other(more, 2, 17, 5);
        q.x_src = other.x_src;
        for (std::int64_t& index : q.indices) {
            index %= static_cast<std::int64_t>(more);
        }
        q.narrow_indices.assign(q.indices.begin(), q.indices.end());
        Gatv2Options options;
        options.self_loops = true;
        const std::vector<float> expected = run(q, options);
        options.threads = 3;
        CHECK(run(q, options) == expected);
    }
    // Large enough for several threads.
    const Problem<T> q(3000, 2, 40, 1);
    Gatv2Options options;
    options.self_loops = true;
    const std::vector<float> expected = run(q, options);
    for (const int threads : {2, 5}) {
        options.threads = threads;
        CHECK(run(q, options) == expected);
    }
    Problem<T> none(1, 3, 5, 2);
    none.indptr = {0};
    none.x_dst.clear();
    none.indices.clear();
    CHECK(run(none, {}).size() == none.x_src.size() + none.att.size());
}

void check_error(const std::function<void()>& call, const std::string& name) {
    try {
        call();
    } catch (const pyfast::Error& error) {
        CHECK(std::string(error.what()).find(name) == 0);
        return;
    }
    std::fprintf(stderr, "expected an error about %s, got none\n", name.c_str());
    std::exit(1);
}

void check_errors() {
    const Problem<float> good(9, 2, 5, 3);
    const std::vector<float> expected = run(good, {});
    const auto refuse = [&](const char* name, const std::function<void(Problem<float>&)>& change,
                            const Gatv2Options& options = {}) {
        Problem<float> bad = good;
        change(bad);
        check_error([&] { run(bad, options); }, name);
        CHECK(run(good, {}) == expected);
    };
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
    refuse("indptr", [](auto& q) { q.indptr.clear(); });
    refuse("indptr", [](auto& q) { q.indptr.front() = -1; });
    refuse("indptr", [](auto& q) { q.indptr.back() += 1; });
    refuse("indptr", [](auto& q) { q.indptr[4] = most; });
    refuse("indptr", [](auto& q) { q.indptr[4] = std::numeric_limits<std::int64_t>::min(); });
    refuse("indptr", [](auto& q) { q.indices.pop_back(); });
    refuse("indices", [](auto& q) { q.indices.back() = 9; });
    refuse("indices", [](auto& q) { q.indices.back() = -1; });
    refuse("indices", [](auto& q) { q.indices.back() = most; });
    refuse("indices", [](auto& q) {
        q.narrow = true;
        q.narrow_indices.back() = -1;
    });
    refuse("x_src", [](auto& q) { q.x_src.pop_back(); });
    refuse("x_dst", [](auto& q) { q.x_dst.pop_back(); });
    refuse("att", [](auto& q) { q.att.pop_back(); });
    refuse("att", [](auto& q) { q.heads = 0; });
    refuse("att", [](auto& q) { q.channels = -1; });
    refuse("att", [](auto& q) { q.channels = most; });
    refuse("mask", [](auto& q) { q.mask.resize(1); }, {.masked = true});
    refuse("negative_slope", [](auto&) {}, {.negative_slope = std::numeric_limits<double>::infinity()});
    refuse("dropout", [](auto&) {}, {.dropout = 1.0});
    refuse("dropout", [](auto&) {}, {.dropout = std::numeric_limits<double>::quiet_NaN()});

    const Gatv2Layer<float> layer = good.layer();
    std::vector<float> y(good.x_dst.size());
    std::vector<float> attention(good.indices.size() * 2);
    std::vector<float> small(3);
    check_error([&] { gatv2<float>(layer, {}, small, attention); }, "y");
    check_error([&] { gatv2<float>(layer, {}, y, small); }, "attention");
    gatv2<float>(layer, {}, y, attention);
    check_error([&] { gatv2_backward<float>(layer, {}, small, y, {}); }, "attention");
    check_error([&] { gatv2_backward<float>(layer, {}, attention, small, {}); }, "grad");
    check_error([&] { gatv2_backward<float>(layer, {}, attention, y, {small, {}, {}}); }, "gradients.x_src");
    check_error([&] { gatv2_backward<float>(layer, {}, attention, y, {{}, small, {}}); }, "gradients.x_dst");
    check_error([&] { gatv2_backward<float>(layer, {}, attention, y, {{}, {}, small}); }, "gradients.att");
}

// NaN and infinity in every place end in a result.
void check_not_finite() {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        Problem<float> q(9, 2, 5, 4);
        for (auto* x : {&q.x_src, &q.x_dst, &q.att}) {
            Problem<float> spoilt = q;
            (x == &q.x_src ? spoilt.x_src : x == &q.x_dst ? spoilt.x_dst : spoilt.att)[3] = bad;
            const Gatv2Layer<float> layer = spoilt.layer();
            std::vector<float> y(q.x_dst.size());
            std::vector<float> attention(q.indices.size() * 2);
            gatv2<float>(layer, {}, y, attention);
            std::vector<float> gradient(q.x_src.size());
            gatv2_backward<float>(layer, {}, attention, y, {gradient, {}, {}});
        }
    }
}

void check_callers() {
    const Problem<float> problems[] = {{2000, 2, 70, 5}, {3, 1, 9, 6}, {500, 3, 33, 7}};
    std::vector<std::vector<float>> expected;
    for (const auto& q : problems) {
        expected.push_back(run(q, {}));
    }
    std::vector<std::jthread> callers;
    for (std::size_t caller = 0; caller < 3; ++caller) {
        callers.emplace_back([&, caller] {
            for (std::size_t turn = 0; turn < 3; ++turn) {
                const std::size_t which = (caller + turn) % 3;
                CHECK(run(problems[which], {.threads = 2}) == expected[which]);
            }
        });
    }
}

}  // namespace

void test_gatv2() {
    check_type<float>();
    check_type<double>();
    check_type<bfloat16>();
    check_errors();
    check_not_finite();
    check_callers();
}
