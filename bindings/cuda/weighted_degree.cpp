#include "pyfast/cuda/weighted_degree.hpp"

#include "memory.hpp"

namespace pyfast::python::cuda {

void bind_weighted_degree(py::module_& m) {
    m.def(
        "pool_bounds",
        [](const ForwardMemory& x, const RaggedMemory& pools, const Memory& found, const QueueMemory& on) {
            pyfast::cuda::pool_bounds(forward(x), ragged<std::int32_t>(pools), at<std::int64_t>(found), queue(on));
        },
        Released(), py::arg("X"), py::arg("pools"), py::arg("bounds"), py::arg("queue"));
    m.def("weighted_degree_workspace", &pyfast::cuda::weighted_degree_workspace, py::arg("node_count"));
    m.def(
        "weighted_degree",
        [](const ForwardMemory& x, const RaggedMemory& pools, const std::string& weight, const Memory& degree,
           const QueueMemory& on) {
            pyfast::cuda::weighted_degree(forward(x), ragged<std::int32_t>(pools), edge_weight(weight).kind,
                                          at<float>(degree), queue(on));
        },
        Released(), py::arg("X"), py::arg("pools"), py::arg("weight"), py::arg("degree"), py::arg("queue"));
}

}  // namespace pyfast::python::cuda
