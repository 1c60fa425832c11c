#include "pyfast/graph_rank.hpp"

#include "arrays.hpp"

namespace pyfast::python {

void bind_graph_rank(py::module_& m) {
    m.def(
        "graph_rank",
        [](const py::array& semantic, const py::array& structural, const py::array& pool_offsets, float alpha) {
            const auto sem = view<float>(semantic, "semantic");
            const auto str = view<float>(structural, "structural");
            const auto offsets = view<std::int64_t>(pool_offsets, "pool_offsets");
            auto [score, out] = fresh<float>(sem.size());
            {
                const py::gil_scoped_release release;
                graph_rank(sem, str, offsets, alpha, out);
            }
            return score;
        },
        py::arg("semantic"), py::arg("structural"), py::arg("pool_offsets"), py::arg("alpha"));
}

}  // namespace pyfast::python
