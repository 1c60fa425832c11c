#include "pyfast/weighted_degree.hpp"

#include "arrays.hpp"

namespace pyfast::python {

void bind_weighted_degree(py::module_& m) {
    m.def(
        "weighted_degree",
        [](const ForwardArrays& x, const py::array& pool_offsets, const py::array& doc_ids,
           const WeightArgument& weight, const std::string& idf, int threads) {
            const Forward index = forward(x);
            const Pools pools = ragged(pool_offsets, doc_ids, "pool_offsets, doc_ids");
            const auto [kind, function] = edge_weight(weight);
            const WeightedDegreeOptions options{kind, function, idf_of(idf), threads};
            auto [degree, out] = fresh<float>(pools.values.size());
            {
                const py::gil_scoped_release release;
                weighted_degree(index, pools, options, out);
            }
            return degree;
        },
        py::arg("X"), py::arg("pool_offsets"), py::arg("doc_ids"), py::arg("weight"), py::arg("idf"),
        py::arg("threads"));
}

}  // namespace pyfast::python
