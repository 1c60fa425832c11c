#include "pyfast/gatv2.hpp"

#include <algorithm>
#include <array>

#include "arrays.hpp"

namespace pyfast::python {

namespace {

// The NumPy dtype of T. NumPy has no bfloat16.
template <class T>
using InNumPy = std::conditional_t<std::is_same_v<T, bfloat16>, std::uint16_t, T>;

template <class T>
std::span<const T> numbers(const py::array& array, const char* name) {
    const auto found = view<InNumPy<T>>(array, name);
    return {reinterpret_cast<const T*>(found.data()), found.size()};
}

template <class T>
std::pair<py::array, std::span<T>> fresh_numbers(std::size_t n) {
    auto [array, out] = fresh<InNumPy<T>>(n);
    return {array, {reinterpret_cast<T*>(out.data()), out.size()}};
}

// The arguments of both functions, in order.
struct Arguments {
    py::array x_src;
    py::array x_dst;
    py::array indptr;
    py::array indices;
    py::array att;
    std::int64_t heads;
    std::int64_t channels;

    template <class T>
    [[nodiscard]] Gatv2Layer<T> layer() const {
        Gatv2Graph graph{view<std::int64_t>(indptr, "indptr"), {}, {}};
        if (indices.dtype().equal(py::dtype::of<std::int32_t>())) {
            graph.indices32 = view<std::int32_t>(indices, "indices");
        } else {
            graph.indices64 = view<std::int64_t>(indices, "indices");
        }
        return {graph,   numbers<T>(x_src, "x_src"), numbers<T>(x_dst, "x_dst"), numbers<T>(att, "att"), heads,
                channels};
    }
};

template <class T>
py::tuple forward(const Arguments& arguments, const Gatv2Options& options) {
    const Gatv2Layer<T> layer = arguments.layer<T>();
    auto [y, y_out] = fresh_numbers<T>(layer.x_dst.size());
    const std::size_t edges = gatv2_edges(layer.graph, options.self_loops);
    const auto heads = static_cast<std::size_t>(std::max<std::int64_t>(layer.heads, 0));
    auto [attention, attention_out] = fresh_numbers<Gatv2Sum<T>>(edges * heads);
    {
        const py::gil_scoped_release release;
        gatv2(layer, options, y_out, attention_out);
    }
    return py::make_tuple(y, attention);
}

template <class T>
py::tuple backward(const Arguments& arguments, const Gatv2Options& options, const py::array& attention,
                   const py::array& grad, const std::array<bool, 3>& wanted) {
    const Gatv2Layer<T> layer = arguments.layer<T>();
    const auto shares = numbers<Gatv2Sum<T>>(attention, "attention");
    const auto flow = numbers<T>(grad, "grad");
    auto [x_src, x_src_out] = fresh_numbers<T>(wanted[0] ? layer.x_src.size() : 0);
    auto [x_dst, x_dst_out] = fresh_numbers<T>(wanted[1] ? layer.x_dst.size() : 0);
    auto [att, att_out] = fresh_numbers<T>(wanted[2] ? layer.att.size() : 0);
    {
        const py::gil_scoped_release release;
        gatv2_backward<T>(layer, options, shares, flow, {x_src_out, x_dst_out, att_out});
    }
    return py::make_tuple(x_src, x_dst, att);
}

// Calls use(T) with the type of the features.
template <class Use>
py::tuple with_type(const py::array& features, const Use& use) {
    if (features.dtype().equal(py::dtype::of<double>())) {
        return use(double{});
    }
    if (features.dtype().equal(py::dtype::of<std::uint16_t>())) {
        return use(bfloat16{});
    }
    return use(float{});
}

}  // namespace

void bind_gatv2(py::module_& m) {
    m.def(
        "gatv2",
        [](const py::array& x_src, const py::array& x_dst, const py::array& indptr, const py::array& indices,
           const py::array& att, std::int64_t heads, std::int64_t channels, double negative_slope, bool self_loops,
           double dropout, std::uint64_t seed, bool masked, const py::array& mask, int threads) {
            const Arguments arguments{x_src, x_dst, indptr, indices, att, heads, channels};
            const Gatv2Options options{
                negative_slope, self_loops, dropout, seed, masked, view<std::uint8_t>(mask, "mask"), threads};
            return with_type(x_src, [&](auto type) { return forward<decltype(type)>(arguments, options); });
        },
        py::arg("x_src"), py::arg("x_dst"), py::arg("indptr"), py::arg("indices"), py::arg("att"),
        py::arg("heads"), py::arg("channels"), py::arg("negative_slope"), py::arg("self_loops"),
        py::arg("dropout"), py::arg("seed"), py::arg("masked"), py::arg("mask"), py::arg("threads"));
    m.def(
        "gatv2_backward",
        [](const py::array& x_src, const py::array& x_dst, const py::array& indptr, const py::array& indices,
           const py::array& att, std::int64_t heads, std::int64_t channels, double negative_slope, bool self_loops,
           double dropout, const py::array& attention, const py::array& grad, const std::array<bool, 3>& wanted,
           int threads) {
            const Arguments arguments{x_src, x_dst, indptr, indices, att, heads, channels};
            Gatv2Options options{negative_slope, self_loops, dropout};
            options.threads = threads;
            return with_type(x_src, [&](auto type) {
                return backward<decltype(type)>(arguments, options, attention, grad, wanted);
            });
        },
        py::arg("x_src"), py::arg("x_dst"), py::arg("indptr"), py::arg("indices"), py::arg("att"),
        py::arg("heads"), py::arg("channels"), py::arg("negative_slope"), py::arg("self_loops"),
        py::arg("dropout"), py::arg("attention"), py::arg("grad"), py::arg("wanted"), py::arg("threads"));
}

}  // namespace pyfast::python
