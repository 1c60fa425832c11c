#include "pyfast/prune.hpp"

#include <algorithm>

#include "arrays.hpp"

namespace pyfast::python {

void bind_prune(py::module_& m) {
    m.def(
        "prune",
        [](const py::array& score, const py::array& is_table, const py::array& pool_offsets,
           std::int64_t min_nodes, std::int64_t max_nodes, std::int64_t per_kind) {
            const auto scores = view<float>(score, "score");
            const auto kinds = view<std::uint8_t>(is_table, "is_table");
            const auto offsets = view<std::int64_t>(pool_offsets, "pool_offsets");
            Pruned pruned;
            {
                const py::gil_scoped_release release;
                pruned = prune(scores, kinds, offsets, {min_nodes, max_nodes, per_kind});
            }
            return py::make_tuple(copy(pruned.offsets), copy(pruned.nodes));
        },
        py::arg("score"), py::arg("is_table"), py::arg("pool_offsets"), py::arg("min_nodes"), py::arg("max_nodes"),
        py::arg("per_kind"));
}

}  // namespace pyfast::python
