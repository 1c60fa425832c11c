#include "pyfast/cuda/gatv2.hpp"

#include "memory.hpp"

namespace pyfast::python::cuda {

namespace {

// (x_src, x_dst, indptr, indices, whether they have 64 bits, att, heads, channels)
using LayerMemory = std::tuple<Memory, Memory, Memory, Memory, bool, Memory, std::int64_t, std::int64_t>;
// (negative slope, self-loops, dropout, seed, mask)
using Settings = std::tuple<double, bool, double, std::uint64_t, std::optional<Memory>>;

template <class T>
Gatv2Layer<T> layer_of(const LayerMemory& memory) {
    const auto& [x_src, x_dst, indptr, indices, wide, att, heads, channels] = memory;
    Gatv2Graph graph{at<const std::int64_t>(indptr), {}, {}};
    if (wide) {
        graph.indices64 = at<const std::int64_t>(indices);
    } else {
        graph.indices32 = at<const std::int32_t>(indices);
    }
    return {graph, at<const T>(x_src), at<const T>(x_dst), at<const T>(att), heads, channels};
}

Gatv2Options options_of(const Settings& settings) {
    const auto& [slope, self_loops, dropout, seed, mask] = settings;
    Gatv2Options options{slope, self_loops, dropout, seed};
    options.masked = mask.has_value();
    if (mask) {
        options.mask = at<const std::uint8_t>(*mask);
    }
    return options;
}

// Calls use(T) with the type of the features.
template <class Use>
void with_type(bool is_bfloat16, const Use& use) {
    if (is_bfloat16) {
        use(bfloat16{});
    } else {
        use(float{});
    }
}

template <class T>
Gatv2Gradients<T> gradients_of(const std::tuple<Memory, Memory, Memory>& memory) {
    const auto& [x_src, x_dst, att] = memory;
    return {at<T>(x_src), at<T>(x_dst), at<T>(att)};
}

}  // namespace

void bind_gatv2(py::module_& m) {
    m.def(
        "gatv2",
        [](bool is_bfloat16, const LayerMemory& layer, const Settings& settings, const Memory& y,
           const Memory& attention, const QueueMemory& on) {
            with_type(is_bfloat16, [&](auto type) {
                using T = decltype(type);
                pyfast::cuda::gatv2(layer_of<T>(layer), options_of(settings), at<T>(y), at<float>(attention),
                                    queue(on));
            });
        },
        Released(), py::arg("is_bfloat16"), py::arg("layer"), py::arg("settings"), py::arg("y"),
        py::arg("attention"), py::arg("queue"));
    m.def(
        "gatv2_backward_workspace",
        [](bool is_bfloat16, const LayerMemory& layer, const Settings& settings,
           const std::tuple<Memory, Memory, Memory>& gradients) {
            std::size_t bytes = 0;
            with_type(is_bfloat16, [&](auto type) {
                using T = decltype(type);
                bytes = pyfast::cuda::gatv2_backward_workspace(layer_of<T>(layer), options_of(settings),
                                                               gradients_of<T>(gradients));
            });
            return bytes;
        },
        py::arg("is_bfloat16"), py::arg("layer"), py::arg("settings"), py::arg("gradients"));
    m.def(
        "gatv2_backward",
        [](bool is_bfloat16, const LayerMemory& layer, const Settings& settings, const Memory& attention,
           const Memory& grad, const std::tuple<Memory, Memory, Memory>& gradients, const QueueMemory& on) {
            with_type(is_bfloat16, [&](auto type) {
                using T = decltype(type);
                pyfast::cuda::gatv2_backward<T>(layer_of<T>(layer), options_of(settings),
                                                at<const float>(attention), at<const T>(grad),
                                                gradients_of<T>(gradients), queue(on));
            });
        },
        Released(), py::arg("is_bfloat16"), py::arg("layer"), py::arg("settings"), py::arg("attention"),
        py::arg("grad"), py::arg("gradients"), py::arg("queue"));
}

}  // namespace pyfast::python::cuda
