#include "pyfast/evidence_graph.hpp"

#include "arrays.hpp"

namespace pyfast::python {

void bind_evidence_graph(py::module_& m) {
    m.def(
        "evidence_graph",
        [](const ForwardArrays& x, const py::array& pool_offsets, const py::array& doc_ids,
           const WeightArgument& weight, const std::string& idf, float threshold,
           std::optional<std::int64_t> top_k, const std::optional<RaggedArrays>& mask_terms, int threads) {
            const Forward index = forward(x);
            const Pools pools = ragged(pool_offsets, doc_ids, "pool_offsets, doc_ids");
            const Ragged<std::int32_t> masked =
                mask_terms ? ragged(std::get<0>(*mask_terms), std::get<1>(*mask_terms), "mask_terms")
                           : Ragged<std::int32_t>{};
            const auto [kind, function] = edge_weight(weight);
            const EvidenceGraphOptions options{kind, function, idf_of(idf), threshold, top_k, threads};
            Graph graph;
            {
                const py::gil_scoped_release release;
                graph = evidence_graph(index, pools, masked, options);
            }
            return py::make_tuple(own(std::move(graph.indptr)), own(std::move(graph.indices)),
                                  own(std::move(graph.weights)));
        },
        py::arg("X"), py::arg("pool_offsets"), py::arg("doc_ids"), py::arg("weight"), py::arg("idf"),
        py::arg("threshold"), py::arg("top_k"), py::arg("mask_terms"), py::arg("threads"));
}

}  // namespace pyfast::python
