#include "pyfast/prune.hpp"

#include <algorithm>

#include "arrays.hpp"

namespace pyfast::python {

void bind_prune(py::module_& m) {
    m.def("prune", [](const py::array& score, const py::array& is_table, const py::array& pool_offsets,
                      std::int64_t least, std::int64_t most, std::int64_t per_kind) {
        const auto scores = view<float>(score, "score");
        const auto kinds = view<std::uint8_t>(is_table, "is_table");
        const auto offsets = view<std::int64_t>(pool_offsets, "pool_offsets");
        Pruned pruned;
        {
            const py::gil_scoped_release release;
            pruned = prune(scores, kinds, offsets, {least, most, per_kind});
        }
        return py::make_tuple(copy(pruned.offsets), copy(pruned.nodes));
    });
}

}  // namespace pyfast::python
