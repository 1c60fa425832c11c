#include "gatv2_rows.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "multiversion.hpp"

namespace pyfast::gatv2_rows {

namespace {

// The portable vectors of GCC and Clang: one, two or four registers, depending on the processor.
template <class A>
struct VectorOf;
template <>
struct VectorOf<float> {
    typedef float type [[gnu::vector_size(64)]];
};
template <>
struct VectorOf<double> {
    typedef double type [[gnu::vector_size(64)]];
};
template <class A>
using Vector = typename VectorOf<A>::type;

template <class A>
[[gnu::always_inline]] inline void read(const Lanes<A>& lanes, Vector<A>& out) {
    std::memcpy(&out, &lanes, sizeof out);
}
template <class A>
[[gnu::always_inline]] inline void write(const Vector<A>& vector, Lanes<A>& out) {
    std::memcpy(&out, &vector, sizeof vector);
}

template <class A>
[[gnu::always_inline]] inline void read_whole(const A* x, Vector<A>& out) {
    std::memcpy(&out, x, sizeof out);
}
[[gnu::always_inline]] inline void read_whole(const bfloat16* x, Vector<float>& out) {
    using Halves [[gnu::vector_size(32)]] = std::uint16_t;
    using Words [[gnu::vector_size(64)]] = std::uint32_t;
    Halves halves;
    std::memcpy(&halves, x, sizeof halves);
    const Words words = __builtin_convertvector(halves, Words) << 16;
    std::memcpy(&out, &words, sizeof out);
}

[[gnu::always_inline]] inline float widened(float number) { return number; }
[[gnu::always_inline]] inline double widened(double number) { return number; }
[[gnu::always_inline]] inline float widened(bfloat16 number) { return widen(number); }

// Calls use(v, vector) for each vector of one head's channels. Lanes beyond the last channel are zero.
template <class T, class Use>
[[gnu::always_inline]] inline void each_vector(const T* head, std::size_t channels, const Use& use) {
    using A = Gatv2Sum<T>;
    constexpr std::size_t lanes = Lanes<A>::count;
    const std::size_t whole = channels / lanes;
    Vector<A> vector;
    for (std::size_t v = 0; v < whole; ++v) {
        read_whole(head + v * lanes, vector);
        use(v, vector);
    }
    if (whole * lanes < channels) {
        Lanes<A> rest{};
        for (std::size_t c = whole * lanes; c < channels; ++c) {
            rest.lane[c - whole * lanes] = widened(head[c]);
        }
        read(rest, vector);
        use(whole, vector);
    }
}

// The sum of the lanes: adds the two halves until one lane is left.
template <class A, std::size_t Bytes = 64>
[[gnu::always_inline]] inline A total(const A* lanes) {
    if constexpr (Bytes == 16) {
        A sum = lanes[0] + lanes[1];
        if constexpr (sizeof(A) == 4) {
            sum = (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
        }
        return sum;
    } else {
        typedef A Half [[gnu::vector_size(Bytes / 2)]];
        Half low;
        Half high;
        std::memcpy(&low, lanes, sizeof low);
        std::memcpy(&high, lanes + sizeof low / sizeof(A), sizeof high);
        low += high;
        A out[sizeof low / sizeof(A)];
        std::memcpy(out, &low, sizeof low);
        return total<A, Bytes / 2>(out);
    }
}
template <class A>
[[gnu::always_inline]] inline A total_of(const Vector<A>& vector) {
    Lanes<A> lanes;
    write<A>(vector, lanes);
    return total<A>(lanes.lane);
}

// The rows of nodes are scattered, so the next edge's row is prefetched while this one is read.
template <class T>
[[gnu::always_inline]] inline const T* row_after(const T* x, std::size_t numbers, const Edge* edge,
                                                 const Edge* known) {
    return x + (edge + 1 < known ? edge + 1 : edge)->node * numbers;
}

template <class T>
[[gnu::always_inline]] inline void spread_rows(Shape shape, const T* x, Lanes<Gatv2Sum<T>>* row) {
    using A = Gatv2Sum<T>;
    for (std::size_t h = 0; h < shape.heads; ++h, x += shape.channels, row += shape.chunks) {
        each_vector(x, shape.channels,
                    [&](std::size_t v, const Vector<A>& feature)
                        __attribute__((always_inline)) { write<A>(feature, row[v]); });
    }
}

template <class T, class A>
[[gnu::always_inline]] inline void score_rows(Shape shape, Attention<A> att, const T* x, const Lanes<A>* centre,
                                              Edges edges, A* scores) {
    constexpr std::size_t lanes = Lanes<A>::count;
    for (const Edge* edge = edges.begin; edge != edges.end; ++edge) {
        const T* row = x + edge->node * shape.numbers();
        const T* next = row_after(x, shape.numbers(), edge, edges.known);
        for (std::size_t h = 0; h < shape.heads; ++h) {
            const Lanes<A>* middles = centre + h * shape.chunks;
            const Lanes<A>* positives = att.positive + h * shape.chunks;
            const Lanes<A>* negatives = att.negative + h * shape.chunks;
            Vector<A> sum{};
            each_vector(row + h * shape.channels, shape.channels,
                        [&](std::size_t v, Vector<A>& feature) __attribute__((always_inline)) {
                            __builtin_prefetch(next + h * shape.channels + v * lanes);
                            Vector<A> middle;
                            Vector<A> positive;
                            Vector<A> negative;
                            read(middles[v], middle);
                            read(positives[v], positive);
                            read(negatives[v], negative);
                            feature += middle;
                            sum += (feature > 0 ? positive : negative) * feature;
                        });
            *scores++ = total_of<A>(sum);
        }
    }
}

template <class T, class A>
[[gnu::always_inline]] inline void aggregate_rows(Shape shape, const T* x, Edges edges, const A* weights,
                                                  Lanes<A>* sum) {
    for (const Edge* edge = edges.begin; edge != edges.end; ++edge) {
        const T* row = x + edge->node * shape.numbers();
        for (std::size_t h = 0; h < shape.heads; ++h) {
            const A weight = *weights++;
            Lanes<A>* sums = sum + h * shape.chunks;
            each_vector(row + h * shape.channels, shape.channels,
                        [&](std::size_t v, const Vector<A>& feature) __attribute__((always_inline)) {
                            Vector<A> here;
                            read(sums[v], here);
                            here += weight * feature;
                            write<A>(here, sums[v]);
                        });
        }
    }
}

template <class T, class A>
[[gnu::always_inline]] inline void dot_rows(Shape shape, const T* x, const Lanes<A>* grad, Edges edges, A* dots) {
    constexpr std::size_t lanes = Lanes<A>::count;
    for (const Edge* edge = edges.begin; edge != edges.end; ++edge) {
        const T* row = x + edge->node * shape.numbers();
        const T* next = row_after(x, shape.numbers(), edge, edges.known);
        for (std::size_t h = 0; h < shape.heads; ++h) {
            const Lanes<A>* flows = grad + h * shape.chunks;
            Vector<A> sum{};
            each_vector(row + h * shape.channels, shape.channels,
                        [&](std::size_t v, const Vector<A>& feature) __attribute__((always_inline)) {
                            __builtin_prefetch(next + h * shape.channels + v * lanes);
                            Vector<A> flow;
                            read(flows[v], flow);
                            sum += flow * feature;
                        });
            *dots++ = total_of<A>(sum);
        }
    }
}

template <class T, class A>
[[gnu::always_inline]] inline void add_to_destination_rows(Shape shape, Attention<A> att, const T* x,
                                                           const Lanes<A>* centre, Edges edges, const A* gradients,
                                                           Lanes<A>* destination, Lanes<A>* of_att) {
    for (const Edge* edge = edges.begin; edge != edges.end; ++edge) {
        const T* row = x + edge->node * shape.numbers();
        for (std::size_t h = 0; h < shape.heads; ++h) {
            const A gradient = *gradients++;
            const Vector<A> whole = Vector<A>{} + gradient;
            const Vector<A> damped = Vector<A>{} + gradient * att.slope;
            const Lanes<A>* middles = centre + h * shape.chunks;
            const Lanes<A>* positives = att.positive + h * shape.chunks;
            const Lanes<A>* negatives = att.negative + h * shape.chunks;
            Lanes<A>* sums = destination + h * shape.chunks;
            Lanes<A>* att_sums = of_att + h * shape.chunks;
            each_vector(row + h * shape.channels, shape.channels,
                        [&](std::size_t v, Vector<A>& feature) __attribute__((always_inline)) {
                            Vector<A> middle;
                            Vector<A> positive;
                            Vector<A> negative;
                            Vector<A> sum;
                            Vector<A> att_sum;
                            read(middles[v], middle);
                            read(positives[v], positive);
                            read(negatives[v], negative);
                            read(sums[v], sum);
                            read(att_sums[v], att_sum);
                            feature += middle;
                            sum += gradient * (feature > 0 ? positive : negative);
                            att_sum += (feature > 0 ? whole : damped) * feature;
                            write<A>(sum, sums[v]);
                            write<A>(att_sum, att_sums[v]);
                        });
        }
    }
}

template <class T, class A>
[[gnu::always_inline]] inline void add_to_source_rows(Shape shape, Attention<A> att, const T* x, const T* grad,
                                                      const Lanes<A>* centre, Edges edges, const A* gradients,
                                                      const A* attention, A keep, Lanes<A>* source) {
    constexpr std::size_t lanes = Lanes<A>::count;
    for (const Edge* edge = edges.begin; edge != edges.end; ++edge) {
        const T* row = x + edge->node * shape.numbers();
        const T* grad_row = grad + edge->node * shape.numbers();
        const T* next = row_after(x, shape.numbers(), edge, edges.known);
        const T* next_grad = row_after(grad, shape.numbers(), edge, edges.known);
        for (std::size_t h = 0; h < shape.heads; ++h) {
            const A gradient = gradients[edge->id * shape.heads + h];
            const A share = attention[edge->id * shape.heads + h];
            const A weight = std::abs(share) * (std::signbit(share) ? A{0} : keep);
            const Lanes<A>* middles = centre + h * shape.chunks;
            const Lanes<A>* positives = att.positive + h * shape.chunks;
            const Lanes<A>* negatives = att.negative + h * shape.chunks;
            Lanes<A>* sums = source + h * shape.chunks;
            const std::size_t first = h * shape.channels;
            each_vector(row + first, shape.channels,
                        [&](std::size_t v, Vector<A>& feature) __attribute__((always_inline)) {
                            __builtin_prefetch(next + first + v * lanes);
                            Vector<A> middle;
                            Vector<A> positive;
                            Vector<A> negative;
                            Vector<A> sum;
                            read(middles[v], middle);
                            read(positives[v], positive);
                            read(negatives[v], negative);
                            read(sums[v], sum);
                            feature += middle;
                            sum += gradient * (feature > 0 ? positive : negative);
                            write<A>(sum, sums[v]);
                        });
            each_vector(grad_row + first, shape.channels,
                        [&](std::size_t v, const Vector<A>& flow) __attribute__((always_inline)) {
                            __builtin_prefetch(next_grad + first + v * lanes);
                            Vector<A> sum;
                            read(sums[v], sum);
                            sum += weight * flow;
                            write<A>(sum, sums[v]);
                        });
        }
    }
}

inline void store(float from, float& to) { to = from; }
inline void store(double from, double& to) { to = from; }
inline void store(float from, bfloat16& to) { to = narrow(from); }

template <class T>
[[gnu::always_inline]] inline void gather_rows(Shape shape, const Lanes<Gatv2Sum<T>>* row, T* x) {
    using A = Gatv2Sum<T>;
    for (std::size_t h = 0; h < shape.heads; ++h) {
        const A* from = row[h * shape.chunks].lane;
        for (std::size_t c = 0; c < shape.channels; ++c) {
            store(from[c], x[h * shape.channels + c]);
        }
    }
}

}  // namespace

// The functions of the header for one type, compiled for each instruction set.
#define PYFAST_GATV2_ROWS(T, A)                                                                                   \
    template <>                                                                                                   \
    PYFAST_MULTIVERSION void spread<T>(const Shape& shape, const T* x, Lanes<A>* row) {                           \
        spread_rows(shape, x, row);                                                                               \
    }                                                                                                             \
    template <>                                                                                                   \
    PYFAST_MULTIVERSION void gather<T>(const Shape& shape, const Lanes<A>* row, T* x) {                           \
        gather_rows(shape, row, x);                                                                               \
    }                                                                                                             \
    template <>                                                                                                   \
    PYFAST_MULTIVERSION void score<T>(const Shape& shape, const Attention<A>& att, const T* x,                    \
                                      const Lanes<A>* centre, const Edges& edges, A* scores) {                    \
        score_rows(shape, att, x, centre, edges, scores);                                                         \
    }                                                                                                             \
    template <>                                                                                                   \
    PYFAST_MULTIVERSION void aggregate<T>(const Shape& shape, const T* x, const Edges& edges, const A* weights,   \
                                          Lanes<A>* sum) {                                                        \
        aggregate_rows(shape, x, edges, weights, sum);                                                            \
    }                                                                                                             \
    template <>                                                                                                   \
    PYFAST_MULTIVERSION void dot<T>(const Shape& shape, const T* x, const Lanes<A>* grad, const Edges& edges,     \
                                    A* dots) {                                                                    \
        dot_rows(shape, x, grad, edges, dots);                                                                    \
    }                                                                                                             \
    template <>                                                                                                   \
    PYFAST_MULTIVERSION void add_to_destination<T>(const Shape& shape, const Attention<A>& att, const T* x,       \
                                                   const Lanes<A>* centre, const Edges& edges,                    \
                                                   const A* gradients, Lanes<A>* destination, Lanes<A>* of_att) { \
        add_to_destination_rows(shape, att, x, centre, edges, gradients, destination, of_att);                    \
    }                                                                                                             \
    template <>                                                                                                   \
    PYFAST_MULTIVERSION void add_to_source<T>(const Shape& shape, const Attention<A>& att, const T* x,            \
                                              const T* grad, const Lanes<A>* centre, const Edges& edges,          \
                                              const A* gradients, const A* attention, A keep, Lanes<A>* source) { \
        add_to_source_rows(shape, att, x, grad, centre, edges, gradients, attention, keep, source);               \
    }

PYFAST_GATV2_ROWS(float, float)
PYFAST_GATV2_ROWS(double, double)
PYFAST_GATV2_ROWS(bfloat16, float)
#undef PYFAST_GATV2_ROWS

PYFAST_MULTIVERSION void exponentials(std::span<double> numbers) {
    constexpr double log2e = 1.4426950408889634;
    // its last 21 bits are zero, so whole multiples are exact
    constexpr double ln2_high = 0.693147180369123816490;
    constexpr double ln2_low = 1.90821492927058770002e-10;
    constexpr double rounding = 6755399441055744.0;  // 3 * 2^51: adding it leaves the integer in the last bits
    constexpr double taylor[] = {1.0 / 6227020800.0,
                                 1.0 / 479001600.0,
                                 1.0 / 39916800.0,
                                 1.0 / 3628800.0,
                                 1.0 / 362880.0,
                                 1.0 / 40320.0,
                                 1.0 / 5040.0,
                                 1.0 / 720.0,
                                 1.0 / 120.0,
                                 1.0 / 24.0,
                                 1.0 / 6.0,
                                 0.5,
                                 1.0,
                                 1.0};
    for (double& number : numbers) {
        const double x = number < -708.0 ? -708.0 : number;
        const double shifted = x * log2e + rounding;
        const double whole = shifted - rounding;
        const double rest = (x - whole * ln2_high) - whole * ln2_low;
        double sum = 0.0;
        for (const double coefficient : taylor) {
            sum = sum * rest + coefficient;
        }
        const auto power = std::bit_cast<double>((std::bit_cast<std::uint64_t>(shifted) + 1023) << 52);
        number = number < -708.0 ? 0.0 : sum * power;
    }
}

}  // namespace pyfast::gatv2_rows
