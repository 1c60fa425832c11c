#include "pyfast/cuda/pagerank.hpp"

#include "memory.hpp"

namespace pyfast::python::cuda {

void bind_pagerank(py::module_& m) {
    m.def("pagerank_workspace", &pyfast::cuda::pagerank_workspace, py::arg("node_count"), py::arg("edge_count"));
    m.def(
        "pagerank",
        [](const std::tuple<Memory, Memory, Memory, Memory>& g, const Memory& shares, double damping,
           double tolerance, std::int64_t max_iterations, const Memory& rank, const Memory& converged,
           const QueueMemory& on) {
            const auto& [pool_offsets, indptr, indices, weights] = g;
            const Graphs graphs{at<const std::int64_t>(pool_offsets), at<const std::int64_t>(indptr),
                                at<const std::int32_t>(indices), at<const float>(weights)};
            const PageRankOptions options{damping, tolerance, max_iterations};
            pyfast::cuda::pagerank(graphs, at<const float>(shares), options, at<float>(rank),
                                   at<std::uint8_t>(converged), queue(on));
        },
        Released(), py::arg("g"), py::arg("personalization"), py::arg("damping"), py::arg("tolerance"),
        py::arg("max_iterations"), py::arg("rank"), py::arg("converged"), py::arg("queue"));
}

}  // namespace pyfast::python::cuda
