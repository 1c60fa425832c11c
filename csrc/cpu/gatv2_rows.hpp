// What gatv2 does with the edges of one node: loops over heads and channels in vectors of one width, so that
// sums are the same on every processor.
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

// [heads, chunks] vectors; the lanes behind the last channel are zero.
template <class A>
using Vectors = std::vector<Lanes<A>>;

struct Shape {
    std::size_t heads;
    std::size_t channels;
    std::size_t chunks;  // vectors that hold the channels of a head

    [[nodiscard]] std::size_t numbers() const { return heads * channels; }
    [[nodiscard]] std::size_t vectors() const { return heads * chunks; }
};

// att, and att times the negative slope: what a feature's sign chooses from.
template <class A>
struct Attention {
    const Lanes<A>* positive;
    const Lanes<A>* negative;
    A slope;
};

struct Edge {
    std::size_t id;    // its row of attention
    std::size_t node;  // its other end
};

// The edges of one node; those behind them, up to `known`, are worked on next.
struct Edges {
    const Edge* begin;
    const Edge* end;
    const Edge* known;

    [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(end - begin); }
};

// A row of T as vectors of sums, and back.
template <class T>
void spread(const Shape& shape, const T* x, Lanes<Gatv2Sum<T>>* row);
template <class T>
void gather(const Shape& shape, const Lanes<Gatv2Sum<T>>* row, T* x);

// In what follows k counts the given edges, h the heads, and x has one row for each node that they may lead to.

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

// Adds to destination and of_att what the gradients[k, h] of the scores make of them.
template <class T>
void add_to_destination(const Shape& shape, const Attention<Gatv2Sum<T>>& att, const T* x,
                        const Lanes<Gatv2Sum<T>>* centre, const Edges& edges, const Gatv2Sum<T>* gradients,
                        Lanes<Gatv2Sum<T>>* destination, Lanes<Gatv2Sum<T>>* of_att);

// Adds to source what the gradients[id k, h] of the scores and the weights keep * attention[id k, h] (none where
// negative) of grad[node k] make of it.
template <class T>
void add_to_source(const Shape& shape, const Attention<Gatv2Sum<T>>& att, const T* x, const T* grad,
                   const Lanes<Gatv2Sum<T>>* centre, const Edges& edges, const Gatv2Sum<T>* gradients,
                   const Gatv2Sum<T>* attention, Gatv2Sum<T> keep, Lanes<Gatv2Sum<T>>* source);

// Each number, none above 0, becomes its exponential, to 2 units in the last place; 0 below -708. (The standard
// library's has another last bit on another processor.)
void exponentials(std::span<double> numbers);

}  // namespace pyfast::gatv2_rows
