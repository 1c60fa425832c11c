#include "pyfast/cuda/evidence_graph.hpp"

#include "memory.hpp"

namespace pyfast::python::cuda {

namespace {

EvidenceGraphOptions options_of(const std::string& weight, float threshold, std::optional<std::int64_t> top_k) {
    EvidenceGraphOptions options;
    options.weight = edge_weight(weight).kind;
    options.threshold = threshold;
    options.top_k = top_k;
    return options;
}

}  // namespace

void bind_evidence_graph(py::module_& m) {
    m.def(
        "evidence_graph_workspace",
        [](std::size_t pools, std::size_t nodes, const BoundNumbers& numbers) {
            return pyfast::cuda::evidence_graph_workspace(pools, nodes, bounds(numbers));
        },
        py::arg("pool_count"), py::arg("node_count"), py::arg("bounds"));
    m.def(
        "evidence_graph_count",
        [](const ForwardMemory& x, const RaggedMemory& pools, const std::optional<RaggedMemory>& masked,
           const std::string& weight, float threshold, std::optional<std::int64_t> top_k,
           const BoundNumbers& numbers, const Memory& indptr, const QueueMemory& on) {
            pyfast::cuda::evidence_graph_count(forward(x), ragged<std::int32_t>(pools),
                                               masked ? ragged<std::int32_t>(*masked) : Ragged<std::int32_t>{},
                                               options_of(weight, threshold, top_k), bounds(numbers),
                                               at<std::int64_t>(indptr), queue(on));
        },
        Released(), py::arg("X"), py::arg("pools"), py::arg("mask_terms"), py::arg("weight"), py::arg("threshold"),
        py::arg("top_k"), py::arg("bounds"), py::arg("indptr"), py::arg("queue"));
    m.def(
        "evidence_graph_fill",
        [](const RaggedMemory& pools, const std::string& weight, float threshold,
           std::optional<std::int64_t> top_k, const BoundNumbers& numbers, const Memory& indptr,
           const Memory& indices, const Memory& weights, const QueueMemory& on) {
            pyfast::cuda::evidence_graph_fill(ragged<std::int32_t>(pools), options_of(weight, threshold, top_k),
                                              bounds(numbers), at<const std::int64_t>(indptr),
                                              at<std::int32_t>(indices), at<float>(weights), queue(on));
        },
        Released(), py::arg("pools"), py::arg("weight"), py::arg("threshold"), py::arg("top_k"), py::arg("bounds"),
        py::arg("indptr"), py::arg("indices"), py::arg("weights"), py::arg("queue"));
}

}  // namespace pyfast::python::cuda
