#include "pyfast/bridge_select.hpp"

#include "arrays.hpp"

namespace pyfast::python {

void bind_bridge_select(py::module_& m) {
    m.def(
        "bridge_select",
        [](const ForwardArrays& x, const py::array& pool_offsets, const py::array& doc_ids,
           const py::array& semantic, const py::array& is_table, const py::array& value_offsets,
           const py::array& term_offsets, const py::array& term_ids, float beta) {
            const Forward index = forward(x);
            const Pools pools = ragged(pool_offsets, doc_ids, "pool_offsets, doc_ids");
            const auto scores = view<float>(semantic, "semantic");
            const auto kinds = view<std::uint8_t>(is_table, "is_table");
            const Cells cells{integers(value_offsets, "cells.value_offsets"),
                              integers(term_offsets, "cells.term_offsets"),
                              view<std::int32_t>(term_ids, "cells.term_ids")};
            auto [boosted, out] = fresh<float>(scores.size());
            {
                const py::gil_scoped_release release;
                bridge_select(index, pools, scores, kinds, cells, beta, out);
            }
            return boosted;
        },
        py::arg("X"), py::arg("pool_offsets"), py::arg("doc_ids"), py::arg("semantic"), py::arg("is_table"),
        py::arg("value_offsets"), py::arg("term_offsets"), py::arg("term_ids"), py::arg("beta"));
}

}  // namespace pyfast::python
