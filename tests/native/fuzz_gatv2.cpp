// What gatv2 and its derivative promise of any result that they give back.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "fuzz_input.hpp"
#include "fuzz_ops.hpp"
#include "pyfast/gatv2.hpp"

namespace fuzz {

namespace {

using pyfast::bfloat16;
using pyfast::Gatv2Sum;

double wide(float x) { return static_cast<double>(x); }
double wide(double x) { return x; }
double wide(bfloat16 x) { return static_cast<double>(pyfast::widen(x)); }
void set(float& to, float x) { to = x; }
void set(double& to, float x) { to = static_cast<double>(x); }
void set(bfloat16& to, float x) { to = pyfast::narrow(x); }

// A graph from some sources to some destinations, the layer's arrays, and then perhaps some of it spoilt.
template <class T>
struct Layer {
    explicit Layer(Input& in) {
        heads = 1 + in.below(3);
        channels = in.one_in(8) ? 1 + in.below(40) : 1 + in.below(6);
        const std::int64_t sources = in.below(9);
        const std::int64_t destinations = in.coin() ? sources : in.below(9);
        for (std::int64_t i = 0; i < destinations; ++i) {
            for (std::int64_t edges = sources == 0 ? 0 : in.below(6); edges > 0; --edges) {
                indices.push_back(in.below(sources));
            }
            indptr.push_back(static_cast<std::int64_t>(indices.size()));
        }
        const auto fill = [&](std::vector<T>& numbers, std::int64_t rows) {
            numbers.resize(static_cast<std::size_t>(rows * heads * channels));
            for (T& to : numbers) {
                set(to, moderate ? static_cast<float>(in.below(65)) / 16.0f - 2.0f : in.number());
            }
        };
        moderate = !in.one_in(8);
        fill(x_src, sources);
        fill(x_dst, destinations);
        fill(att, 1);
        fill(grad, destinations);
        options.self_loops = in.coin();
        options.negative_slope = in.one_in(8) ? wide(in.number()) : 0.2;
        options.dropout = in.one_in(4) ? (in.one_in(8) ? wide(in.number()) : 0.5) : 0.0;
        options.seed = in.bits(2);
        options.masked = in.one_in(4);
        options.threads = in.one_in(8) ? static_cast<int>(in.setting(4)) : 1;
        narrow = in.coin();
        for (std::int64_t times = in.below(5); times > 1; --times) {
            spoilt = true;
            switch (in.below(7)) {
                case 0: in.spoil(indptr); break;
                case 1: in.spoil(indices); break;
                case 2: heads = in.setting(4); break;
                case 3: channels = in.setting(4); break;
                case 4: x_src.resize(static_cast<std::size_t>(in.below(99))); break;
                case 5: x_dst.resize(static_cast<std::size_t>(in.below(99))); break;
                default: att.resize(static_cast<std::size_t>(in.below(9)));
            }
        }
        indices32.assign(indices.begin(), indices.end());
        const std::size_t weights = pyfast::gatv2_edges(view().graph, options.self_loops) *
                                    static_cast<std::size_t>(std::clamp<std::int64_t>(heads, 0, 9));
        attention.resize(in.one_in(32) ? 0 : weights);
        mask.resize(in.one_in(32) ? 0 : weights);
        std::generate(mask.begin(), mask.end(), [&] { return static_cast<std::uint8_t>(in.coin() ? 1 : 0); });
        options.mask = mask;
        indptr.shrink_to_fit();
        indices.shrink_to_fit();
        x_src.shrink_to_fit();
        x_dst.shrink_to_fit();
        att.shrink_to_fit();
    }

    [[nodiscard]] pyfast::Gatv2Layer<T> view() const {
        pyfast::Gatv2Layer<T> out{{indptr, {}, {}}, x_src, x_dst, att, heads, channels};
        if (narrow) {
            out.graph.indices32 = indices32;
        } else {
            out.graph.indices64 = indices;
        }
        return out;
    }

    std::vector<std::int64_t> indptr{0};
    std::vector<std::int64_t> indices;
    std::vector<std::int32_t> indices32;
    std::vector<T> x_src, x_dst, att, grad;
    std::vector<Gatv2Sum<T>> attention;
    std::vector<std::uint8_t> mask;
    pyfast::Gatv2Options options;
    std::int64_t heads = 0;
    std::int64_t channels = 0;
    bool narrow = false;
    bool moderate = true;
    bool spoilt = false;
};

// e_ij of the header, in double, and the sum of its terms without their signs: what rounding is relative to.
struct Score {
    double value = 0.0;
    double size = 0.0;
};

template <class T>
Score score(const Layer<T>& q, std::size_t destination, std::size_t source, std::size_t head) {
    const auto channels = static_cast<std::size_t>(q.channels);
    const std::size_t row = static_cast<std::size_t>(q.heads) * channels;
    Score out;
    for (std::size_t c = head * channels; c < (head + 1) * channels; ++c) {
        const double feature = wide(q.x_src[source * row + c]) + wide(q.x_dst[destination * row + c]);
        const double term = wide(q.att[c]) * (feature > 0.0 ? feature : q.options.negative_slope * feature);
        out.value += term;
        out.size += std::abs(term);
    }
    return out;
}

// Each weight is what the scores make of it, and the weights of a destination add up to 1.
template <class T>
void check_attention(const Layer<T>& q) {
    const auto heads = static_cast<std::size_t>(q.heads);
    const std::size_t row = heads * static_cast<std::size_t>(q.channels);
    const std::size_t sources = q.x_src.size() / row;
    const double rounding = static_cast<double>(std::numeric_limits<Gatv2Sum<T>>::epsilon());
    for (std::size_t i = 0; i + 1 < q.indptr.size(); ++i) {
        std::vector<std::pair<std::size_t, std::size_t>> edges;  // its row of attention, its source
        for (auto e = static_cast<std::size_t>(q.indptr[i]); e < static_cast<std::size_t>(q.indptr[i + 1]); ++e) {
            if (!q.options.self_loops || static_cast<std::size_t>(q.indices[e]) != i) {
                edges.emplace_back(e, static_cast<std::size_t>(q.indices[e]));
            }
        }
        if (q.options.self_loops && i < sources) {
            edges.emplace_back(q.indices.size() + i, i);
        }
        for (std::size_t h = 0; h < heads && !edges.empty(); ++h) {
            double highest = -std::numeric_limits<double>::infinity();
            double size = 0.0;
            for (const auto& [edge, source] : edges) {
                const Score at = score(q, i, source, h);
                highest = std::max(highest, at.value);
                size = std::max(size, at.size);
            }
            double total = 0.0;
            for (const auto& [edge, source] : edges) {
                total += std::exp(score(q, i, source, h).value - highest);
            }
            // Two scores, each a sum of as many rounded terms as there are channels.
            const double near = 1e-4 + std::expm1(2.0 * rounding * static_cast<double>(q.channels + 2) * size);
            for (const auto& [edge, source] : edges) {
                const double expected = std::exp(score(q, i, source, h).value - highest) / total;
                const double found = std::abs(static_cast<double>(q.attention[edge * heads + h]));
                REQUIRE(std::abs(found - expected) <= near * expected + 1e-6);
            }
        }
    }
}

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
    return std::ranges::equal(a, b, [](T x, T y) { return wide(x) == wide(y) || wide(x) != wide(x); });
}

template <class T>
void run(Input& in) {
    Layer<T> q(in);
    std::vector<T> y(in.one_in(32) ? 0 : q.x_dst.size());
    pyfast::gatv2<T>(q.view(), q.options, y, q.attention);
    const bool scores_fit = q.moderate && std::abs(q.options.negative_slope) <= 16.0;
    if (scores_fit && !q.spoilt) {
        check_attention(q);
    }
    if (q.grad.size() != q.x_dst.size()) {
        q.grad.resize(q.x_dst.size());
    }
    std::vector<T> x_src(q.x_src.size()), x_dst(q.x_dst.size()), att(q.att.size()), alone(q.x_src.size());
    pyfast::gatv2_backward<T>(q.view(), q.options, q.attention, q.grad, {x_src, x_dst, att});
    q.options.threads = 3;
    pyfast::gatv2_backward<T>(q.view(), q.options, q.attention, q.grad, {alone, {}, {}});
    REQUIRE(same(x_src, alone));
}

}  // namespace

void fuzz_gatv2(Input& in) {
    switch (in.below(3)) {
        case 0: run<float>(in); break;
        case 1: run<double>(in); break;
        default: run<bfloat16>(in);
    }
}

}  // namespace fuzz
