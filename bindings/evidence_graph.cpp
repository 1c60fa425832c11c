#include "pyfast/evidence_graph.hpp"

#include "arrays.hpp"

namespace pyfast::python {

Weight edge_weight(const WeightArgument& given) {
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

Idf idf_of(const std::string& name) {
    if (name != "corpus" && name != "pool") {
        throw Error("idf: '" + name + "' is neither 'corpus' nor 'pool'");
    }
    return name == "pool" ? Idf::pool : Idf::corpus;
}

void bind_evidence_graph(py::module_& m) {
    m.def("evidence_graph",
          [](const ForwardArrays& x, const py::array& pool_offsets, const py::array& doc_ids,
             const WeightArgument& weight, const std::string& idf, float threshold,
             std::optional<std::int64_t> top_k, const std::optional<RaggedArrays>& mask, int threads) {
              const Forward index = forward(x);
              const Pools pools = ragged(pool_offsets, doc_ids, "pool_offsets, doc_ids");
              const Ragged<std::int32_t> masked =
                  mask ? ragged(std::get<0>(*mask), std::get<1>(*mask), "mask_terms") : Ragged<std::int32_t>{};
              const auto [kind, function] = edge_weight(weight);
              const EvidenceGraphOptions options{kind, function, idf_of(idf), threshold, top_k, threads};
              Graph graph;
              {
                  const py::gil_scoped_release release;
                  graph = evidence_graph(index, pools, masked, options);
              }
              return py::make_tuple(own(std::move(graph.indptr)), own(std::move(graph.indices)),
                                    own(std::move(graph.weights)));
          });
}

}  // namespace pyfast::python
