// NumPy arrays in and out of the core, without copies. The Python layer has set the dtypes, this layer checks
// what memory safety needs (dimensions, contiguity, dtype), and the core checks the contents.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include "pyfast/buffer.hpp"
#include "pyfast/error.hpp"
#include "pyfast/evidence_graph.hpp"
#include "pyfast/graphs.hpp"
#include "pyfast/integers.hpp"
#include "pyfast/pools.hpp"
#include "pyfast/texts.hpp"

namespace pyfast::python {

namespace py = pybind11;

template <class T>
std::span<const T> view(const py::array& array, const char* name) {
    if (array.ndim() != 1 || !array.dtype().equal(py::dtype::of<T>()) ||
        (array.flags() & py::array::c_style) == 0) {
        throw Error(std::string(name) + ": must be a contiguous array of one dimension and dtype " +
                    py::str(py::dtype::of<T>()).cast<std::string>());
    }
    return {static_cast<const T*>(array.data()), static_cast<std::size_t>(array.size())};
}

// A column that may have 32 bits.
inline Integers integers(const py::array& array, const char* name) {
    if (array.dtype().equal(py::dtype::of<std::int32_t>())) {
        return view<std::int32_t>(array, name);
    }
    return view<std::int64_t>(array, name);
}

// X as the Python layer passes it: (indptr, indices, data, number of columns).
using ForwardArrays = std::tuple<py::array, py::array, py::array, std::int64_t>;
using RaggedArrays = std::tuple<py::array, py::array>;

inline Forward forward(const ForwardArrays& x) {
    Forward out;
    const auto& [indptr, indices, data, terms] = x;
    if (indptr.dtype().equal(py::dtype::of<std::int32_t>())) {
        out.indptr32 = view<std::int32_t>(indptr, "X.indptr");
    } else {
        out.indptr64 = view<std::int64_t>(indptr, "X.indptr");
    }
    if (indices.dtype().equal(py::dtype::of<std::int64_t>())) {
        out.indices64 = view<std::int64_t>(indices, "X.indices");
    } else {
        out.indices = view<std::int32_t>(indices, "X.indices");
    }
    if (data.dtype().equal(py::dtype::of<double>())) {
        out.weights64 = view<double>(data, "X.data");
    } else {
        out.weights = view<float>(data, "X.data");
    }
    out.terms = terms;
    return out;
}

template <class T = std::int32_t>
Ragged<T> ragged(const py::array& offsets, const py::array& values, const char* name) {
    return {view<std::int64_t>(offsets, name), view<T>(values, name)};
}

// An EvidenceGraph as the Python layer passes it: (pool_offsets, indptr, indices, weights).
using GraphArrays = std::tuple<py::array, py::array, py::array, py::array>;

inline Graphs graphs(const GraphArrays& g) {
    const auto& [pool_offsets, indptr, indices, weights] = g;
    return {view<std::int64_t>(pool_offsets, "g.pool_offsets"), view<std::int64_t>(indptr, "g.indptr"),
            view<std::int32_t>(indices, "g.indices"), view<float>(weights, "g.weights")};
}

// An array that owns the buffer.
template <class T>
py::array_t<T> own(Buffer<T> buffer) {
    T* data = buffer.data.release();
    const py::capsule free(data, [](void* p) { delete[] static_cast<T*>(p); });
    return py::array_t<T>(static_cast<py::ssize_t>(buffer.size), data, free);
}

// An array that owns a vector.
template <class T>
py::array_t<T> copy(const std::vector<T>& vector) {
    return py::array_t<T>(static_cast<py::ssize_t>(vector.size()), vector.data());
}

inline py::tuple tuple(const RankedPools& pools) {
    return py::make_tuple(copy(pools.offsets), copy(pools.documents), copy(pools.scores));
}

// A list of T: py::bytes, or py::str, which is decoded.
template <class T>
py::list list(const Texts& texts) {
    py::list out(texts.offsets.size() - 1);
    for (std::size_t t = 0; t + 1 < texts.offsets.size(); ++t) {
        const auto first = static_cast<std::size_t>(texts.offsets[t]);
        const auto size = static_cast<std::size_t>(texts.offsets[t + 1]) - first;
        out[t] = T(texts.bytes.data() + first, size);
    }
    return out;
}

// A new array of n numbers, and its writable memory.
template <class T>
std::pair<py::array_t<T>, std::span<T>> fresh(std::size_t n) {
    py::array_t<T> array(static_cast<py::ssize_t>(n));
    return {array, {array.mutable_data(), n}};
}

void bind_betweenness(py::module_& m);
void bind_bm25(py::module_& m);
void bind_bridge_expand(py::module_& m);
void bind_bridge_rank(py::module_& m);
void bind_bridge_select(py::module_& m);
void bind_cite(py::module_& m);
void bind_count_words(py::module_& m);
void bind_eigenvector(py::module_& m);
void bind_evidence_graph(py::module_& m);
void bind_fuse(py::module_& m);
void bind_gatv2(py::module_& m);
void bind_graph_rank(py::module_& m);
void bind_hseq_stream(py::module_& m);
void bind_maxsim(py::module_& m);
void bind_narrate(py::module_& m);
void bind_pagerank(py::module_& m);
void bind_prune(py::module_& m);
void bind_select_sentences(py::module_& m);
void bind_weighted_degree(py::module_& m);
void bind_cuda(py::module_& m);  // exists only if the GPU ops are built

// An edge weight as the Python layer passes it: its name, or the address of a function.
using WeightArgument = std::variant<std::uintptr_t, std::string>;
struct Weight {
    EdgeWeight kind = EdgeWeight::sum;
    TermWeight function = nullptr;
};
inline Weight edge_weight(const WeightArgument& given) {
    if (const auto* address = std::get_if<std::uintptr_t>(&given)) {
        return {.function = reinterpret_cast<TermWeight>(*address)};
    }
    const auto& name = std::get<std::string>(given);
    if (name == "sum") {
        return {EdgeWeight::sum};
    }
    if (name == "dot") {
        return {EdgeWeight::dot};
    }
    if (name == "min") {
        return {EdgeWeight::min};
    }
    throw Error("weight: '" + name + "' is none of 'sum', 'dot', 'min'");
}

inline Idf idf_of(const std::string& name) {
    if (name != "corpus" && name != "pool") {
        throw Error("idf: '" + name + "' is neither 'corpus' nor 'pool'");
    }
    return name == "pool" ? Idf::pool : Idf::corpus;
}

}  // namespace pyfast::python
