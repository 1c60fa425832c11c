#include "pyfast/cuda/weighted_degree.hpp"

#include "memory.hpp"

namespace pyfast::python::cuda {

void bind_weighted_degree(py::module_& m) {
    m.def(
        "weighted_degree_workspace",
        [](std::size_t pools, const BoundNumbers& numbers) {
            return pyfast::cuda::weighted_degree_workspace(pools, bounds(numbers));
        },
        py::arg("pool_count"), py::arg("bounds"));
    m.def(
        "weighted_degree",
        [](const ForwardMemory& x, const RaggedMemory& pools, const std::string& weight,
           const BoundNumbers& numbers, const Memory& degree, const QueueMemory& on) {
            pyfast::cuda::weighted_degree(forward(x), ragged<std::int32_t>(pools), edge_weight(weight).kind,
                                          bounds(numbers), at<float>(degree), queue(on));
        },
        Released(), py::arg("X"), py::arg("pools"), py::arg("weight"), py::arg("bounds"), py::arg("degree"),
        py::arg("queue"));
}

}  // namespace pyfast::python::cuda
