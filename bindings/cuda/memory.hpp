// Device memory in and out of the GPU ops: addresses and lengths. The Python layer has checked devices and dtypes.
// Nothing here reads the memory.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>

#include "arrays.hpp"
#include "pyfast/cuda/device.hpp"
#include "pyfast/cuda/pools.hpp"

namespace pyfast::python::cuda {

namespace py = pybind11;

// (address, number of elements)
using Memory = std::tuple<std::uintptr_t, std::size_t>;
using RaggedMemory = std::tuple<Memory, Memory>;
// X: (indptr, whether it has 64 bits, indices, whether they have 64 bits, data, number of columns)
using ForwardMemory = std::tuple<Memory, bool, Memory, bool, Memory, std::int64_t>;
// (documents of the largest pool, the sum of the squares of all pools' documents, entries of all pools)
using BoundNumbers = std::tuple<std::int64_t, std::int64_t, std::int64_t>;
// (stream, address of the status word, workspace)
using QueueMemory = std::tuple<std::uintptr_t, std::uintptr_t, Memory>;

template <class T>
std::span<T> at(const Memory& memory) {
    return {reinterpret_cast<T*>(std::get<0>(memory)), std::get<1>(memory)};
}

template <class T>
Ragged<T> ragged(const RaggedMemory& memory) {
    return {at<const std::int64_t>(std::get<0>(memory)), at<const T>(std::get<1>(memory))};
}

inline Forward forward(const ForwardMemory& memory) {
    const auto& [indptr, wide, indices, wide_indices, weights, terms] = memory;
    Forward x;
    if (wide) {
        x.indptr64 = at<const std::int64_t>(indptr);
    } else {
        x.indptr32 = at<const std::int32_t>(indptr);
    }
    if (wide_indices) {
        x.indices64 = at<const std::int64_t>(indices);
    } else {
        x.indices = at<const std::int32_t>(indices);
    }
    x.weights = at<const float>(weights);
    x.terms = terms;
    return x;
}

inline pyfast::cuda::Bounds bounds(const BoundNumbers& numbers) {
    return {std::get<0>(numbers), std::get<1>(numbers), std::get<2>(numbers)};
}

inline pyfast::cuda::Queue queue(const QueueMemory& memory) {
    const auto& [stream, status, workspace] = memory;
    return {reinterpret_cast<void*>(stream), reinterpret_cast<std::int32_t*>(status), at<std::byte>(workspace)};
}

// All conversions happen before the call, because a launch needs no Python.
using Released = py::call_guard<py::gil_scoped_release>;

void bind_evidence_graph(py::module_& m);
void bind_gatv2(py::module_& m);
void bind_graph_rank(py::module_& m);
void bind_hseq_stream(py::module_& m);
void bind_maxsim(py::module_& m);
void bind_pagerank(py::module_& m);
void bind_weighted_degree(py::module_& m);

}  // namespace pyfast::python::cuda
