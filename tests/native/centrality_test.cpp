#include "centrality_test.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "pyfast/betweenness.hpp"
#include "pyfast/eigenvector.hpp"
#include "pyfast/error.hpp"
#include "pyfast/pagerank.hpp"

namespace {

using pyfast::EdgeLength;

// Arrays exactly as large as their contents, so that a sanitizer sees one step too far.
struct Batch {
    std::vector<std::int64_t> pool_offsets{0};
    std::vector<std::int64_t> indptr{0};
    std::vector<std::int32_t> indices;
    std::vector<float> weights;

    // Each edge with the given probability in 100, and self-loops and weights of 0 among them.
    void push(std::int32_t nodes, unsigned percent, std::mt19937& random) {
        for (std::int32_t i = 0; i < nodes; ++i) {
            for (std::int32_t j = 0; j < nodes; ++j) {
                if (random() % 100 < percent) {
                    indices.push_back(j);
                    weights.push_back(static_cast<float>(random() % 20) / 4.0f);
                }
            }
            indptr.push_back(static_cast<std::int64_t>(indices.size()));
        }
        pool_offsets.push_back(static_cast<std::int64_t>(indptr.size()) - 1);
    }
    void shrink() {
        pool_offsets.shrink_to_fit();
        indptr.shrink_to_fit();
        indices.shrink_to_fit();
        weights.shrink_to_fit();
    }
    [[nodiscard]] pyfast::Graphs view() const { return {pool_offsets, indptr, indices, weights}; }
    [[nodiscard]] std::size_t nodes() const { return view().nodes(); }
};

using Op = std::function<void(const Batch&, int, std::span<float>)>;

const std::vector<Op> ops{
    [](const Batch& b, int threads, std::span<float> out) { pagerank(b.view(), {}, {.threads = threads}, out); },
    [](const Batch& b, int threads, std::span<float> out) {
        const std::vector<float> restart(b.weights.begin(),
                                         b.weights.begin() + static_cast<std::ptrdiff_t>(out.size()));
        pagerank(b.view(), restart, {.damping = 0.5, .threads = threads}, out);
    },
    [](const Batch& b, int threads, std::span<float> out) { betweenness(b.view(), {.threads = threads}, out); },
    [](const Batch& b, int threads, std::span<float> out) {
        betweenness(b.view(), {.length = EdgeLength::hops, .threads = threads}, out);
    },
    [](const Batch& b, int threads, std::span<float> out) {
        const std::vector<double> lengths(b.indices.size(), 0.75);
        betweenness(b.view(), {.lengths = lengths, .k = 70, .seed = 3, .threads = threads}, out);
    },
    [](const Batch& b, int threads, std::span<float> out) { eigenvector(b.view(), {.threads = threads}, out); },
};

std::vector<float> run(const Op& op, const Batch& batch, int threads) {
    std::vector<float> out(batch.nodes());
    op(batch, threads, out);
    return out;
}

// Ranks add up to 1, eigenvectors have norm 1, betweenness lies in [0, 1].
void check_meaning(const Batch& batch) {
    for (std::size_t o = 0; o < ops.size(); ++o) {
        const std::vector<float> out = run(ops[o], batch, 1);
        for (std::size_t p = 0; p + 1 < batch.pool_offsets.size(); ++p) {
            double sum = 0.0;
            double squares = 0.0;
            for (auto v = batch.pool_offsets[p]; v < batch.pool_offsets[p + 1]; ++v) {
                const double x = out[static_cast<std::size_t>(v)];
                CHECK(x >= 0.0 && x <= 1.0);
                sum += x;
                squares += x * x;
            }
            if (batch.pool_offsets[p + 1] > batch.pool_offsets[p]) {
                CHECK(o > 1 || std::abs(sum - 1.0) < 1e-5);
                CHECK(o < 5 || std::abs(squares - 1.0) < 1e-5);
            }
        }
    }
}

void refuse(const Batch& good, const std::string& name, const std::function<void(Batch&)>& change) {
    for (const Op& op : ops) {
        const std::vector<float> expected = run(op, good, 2);
        for (const int threads : {1, 3}) {
            Batch bad = good;
            change(bad);
            std::string told;
            try {
                std::vector<float> out(good.nodes());
                op(bad, threads, out);
            } catch (const pyfast::Error& error) {
                told = error.what();
            }
            CHECK(told.find(name) != std::string::npos);
            CHECK(run(op, good, threads) == expected);
        }
    }
}

}  // namespace

void test_centrality() {
    std::mt19937 random(7);
    Batch good;
    // 512 nodes is where betweenness shares a pool among threads; a dense pool is a matrix.
    for (const std::int32_t n : {0, 1, 2, 3, 8, 9, 16, 17, 50, 0, 65}) {
        good.push(n, 90, random);
        good.push(n, 10, random);
        good.push(n, 0, random);
    }
    good.push(513, 1, random);
    good.push(20, 100, random);
    good.shrink();
    for (const Op& op : ops) {
        const std::vector<float> expected = run(op, good, 1);
        CHECK(run(op, good, 2) == expected);
        CHECK(run(op, good, 5) == expected);
    }
    check_meaning(good);

    const std::atomic<bool> stop{true};
    std::vector<float> out(good.nodes());
    const auto stopped = [&](const auto& op) {
        try {
            op();
        } catch (const pyfast::Stopped&) {
            return true;
        }
        return false;
    };
    CHECK(stopped([&] { betweenness(good.view(), {.threads = 2, .stop = &stop}, out); }));
    CHECK(stopped([&] { eigenvector(good.view(), {.threads = 2, .stop = &stop}, out); }));
    CHECK(stopped([&] { pagerank(good.view(), {}, {.threads = 2, .stop = &stop}, out); }));

    Batch small;
    for (const std::int32_t n : {0, 6, 40, 9}) {
        small.push(n, 100, random);
    }
    const std::size_t edges = small.indices.size();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    refuse(small, "g.weights", [&](Batch& b) { b.weights[edges - 1] = nan; });
    refuse(small, "g.weights", [&](Batch& b) { b.weights[edges - 20] = -1.0f; });
    refuse(small, "g.weights", [&](Batch& b) { b.weights[edges - 40] = std::numeric_limits<float>::infinity(); });
    refuse(small, "g.weights", [&](Batch& b) { b.weights.pop_back(); });
    refuse(small, "g.indices", [&](Batch& b) { b.indices[edges - 1] = 9; });
    refuse(small, "g.indices", [&](Batch& b) { b.indices[edges - 9] = -1; });
    refuse(small, "g.indices", [&](Batch& b) { b.indices[edges - 4] = b.indices[edges - 5]; });
    refuse(small, "g.indptr", [&](Batch& b) { b.indptr[9] = std::numeric_limits<std::int64_t>::max(); });
    refuse(small, "g.indptr", [&](Batch& b) { b.indptr[9] = -1; });
    refuse(small, "g.indptr", [&](Batch& b) { b.indptr.back() += 1; });
    refuse(small, "g.indptr", [&](Batch& b) { b.indptr.clear(); });
    refuse(small, "g.pool_offsets", [&](Batch& b) { b.pool_offsets.clear(); });
    refuse(small, "g.pool_offsets", [&](Batch& b) { b.pool_offsets[1] = 100; });
    refuse(small, "g.pool_offsets", [&](Batch& b) { b.pool_offsets.back() -= 1; });
}
