// gatv2's work on the edges of one node: loops over heads and channels in vectors of one width, so that sums are
// the same on every processor.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "pyfast/gatv2.hpp"

namespace pyfast::gatv2_rows {

// One vector in memory: a cache line.
template <class A>
struct alignas(64) Lanes {
    static constexpr std::size_t count = 64 / sizeof(A);
    A lane[count];
};

// [heads, chunks] vectors. Lanes beyond the last channel are zero.
template <class A>
using Vectors = std::vector<Lanes<A>>;

struct Shape {
    std::size_t heads;
    std::size_t channels;
    std::size_t chunks;  // the number of vectors for the channels of a head

    [[nodiscard]] std::size_t numbers() const { return heads * channels; }
    [[nodiscard]] std::size_t vectors() const { return heads * chunks; }
};

// att, and att times the negative slope: the sign of a feature chooses between them.
template <class A>
struct Attention {
    const Lanes<A>* positive;
    const Lanes<A>* negative;
    A slope;
};

struct Edge {
    std::size_t id;    // its row of attention
    std::size_t node;  // the node at its other end
};

// The edges of one node. The edges after them, up to `known`, are read next, so they are prefetched.
struct Edges {
    const Edge* begin;
    const Edge* end;
    const Edge* known;

    [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(end - begin); }
};

// Converts a row of T into vectors of the type in which sums are computed, and back.
template <class T>
void spread(const Shape& shape, const T* x, Lanes<Gatv2Sum<T>>* row);
template <class T>
void gather(const Shape& shape, const Lanes<Gatv2Sum<T>>* row, T* x);

// Below, k counts the given edges and h the heads. x has a row for each node that an edge can lead to.

// scores[k, h] = att_h . LeakyReLU(x[node k]_h + centre_h)
template <class T>
void score(const Shape& shape, const Attention<Gatv2Sum<T>>& att, const T* x, const Lanes<Gatv2Sum<T>>* centre,
           const Edges& edges, Gatv2Sum<T>* scores);

// sum_h += weights[k, h] x[node k]_h
template <class T>
void aggregate(const Shape& shape, const T* x, const Edges& edges, const Gatv2Sum<T>* weights,
               Lanes<Gatv2Sum<T>>* sum);

// dots[k, h] = grad_h . x[node k]_h
template <class T>
void dot(const Shape& shape, const T* x, const Lanes<Gatv2Sum<T>>* grad, const Edges& edges, Gatv2Sum<T>* dots);

// Adds to `destination` and `of_att` what gradients[k, h] contribute through the scores.
template <class T>
void add_to_destination(const Shape& shape, const Attention<Gatv2Sum<T>>& att, const T* x,
                        const Lanes<Gatv2Sum<T>>* centre, const Edges& edges, const Gatv2Sum<T>* gradients,
                        Lanes<Gatv2Sum<T>>* destination, Lanes<Gatv2Sum<T>>* of_att);

// Adds to `source` what gradients[id k, h] contribute through the scores, and keep * attention[id k, h] *
// grad[node k] for each weight that was not dropped (its attention is not negative).
template <class T>
void add_to_source(const Shape& shape, const Attention<Gatv2Sum<T>>& att, const T* x, const T* grad,
                   const Lanes<Gatv2Sum<T>>* centre, const Edges& edges, const Gatv2Sum<T>* gradients,
                   const Gatv2Sum<T>* attention, Gatv2Sum<T> keep, Lanes<Gatv2Sum<T>>* source);

// Replaces each number by its exponential, with an error of 2 units in the last place, and 0 below -708. Numbers
// must not be above 0. (The standard library's last bit differs between processors.)
void exponentials(std::span<double> numbers);

}  // namespace pyfast::gatv2_rows
