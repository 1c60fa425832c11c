#include "pyfast/fuse.hpp"

#include "arrays.hpp"

namespace pyfast::python {

void bind_fuse(py::module_& m) {
    m.def(
        "fuse",
        [](const py::array& list_offsets, const py::array& pool_offsets, const py::array& doc_ids,
           const py::array& semantic, std::int64_t k) {
            const auto of_pool = view<std::int64_t>(list_offsets, "list_offsets");
            const Pools lists = ragged(pool_offsets, doc_ids, "pool_offsets, doc_ids");
            const auto scores = view<float>(semantic, "semantic");
            RankedPools fused;
            {
                const py::gil_scoped_release release;
                fused = fuse(of_pool, lists, scores, k);
            }
            return tuple(fused);
        },
        py::arg("list_offsets"), py::arg("pool_offsets"), py::arg("doc_ids"), py::arg("semantic"), py::arg("k"));
}

}  // namespace pyfast::python
