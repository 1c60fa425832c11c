#include "pyfast/cuda/graph_rank.hpp"

#include "memory.hpp"

namespace pyfast::python::cuda {

void bind_graph_rank(py::module_& m) {
    m.def(
        "graph_rank",
        [](const Memory& semantic, const Memory& structural, const Memory& pool_offsets, float alpha,
           const Memory& score, const QueueMemory& on) {
            pyfast::cuda::graph_rank(at<const float>(semantic), at<const float>(structural),
                                     at<const std::int64_t>(pool_offsets), alpha, at<float>(score), queue(on));
        },
        Released(), py::arg("semantic"), py::arg("structural"), py::arg("pool_offsets"), py::arg("alpha"),
        py::arg("score"), py::arg("queue"));
    m.def(
        "degree_rank",
        [](const ForwardMemory& x, const RaggedMemory& pools, const Memory& semantic, const std::string& weight,
           float alpha, const Memory& degree, const Memory& score, const QueueMemory& on) {
            pyfast::cuda::degree_rank(forward(x), ragged<std::int32_t>(pools), at<const float>(semantic),
                                      edge_weight(weight).kind, alpha, at<float>(degree), at<float>(score),
                                      queue(on));
        },
        Released(), py::arg("X"), py::arg("pools"), py::arg("semantic"), py::arg("weight"), py::arg("alpha"),
        py::arg("degree"), py::arg("score"), py::arg("queue"));
}

}  // namespace pyfast::python::cuda
