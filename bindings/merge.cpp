#include "pyfast/merge.hpp"

#include "arrays.hpp"

namespace pyfast::python {

void bind_merge(py::module_& m) {
    m.def("merge", [](const py::array& list_offsets, const py::array& pool_offsets, const py::array& doc_ids,
                      const py::array& semantic, std::int64_t k) {
        const auto of_pool = view<std::int64_t>(list_offsets, "list_offsets");
        const Pools lists = ragged(pool_offsets, doc_ids, "pool_offsets, doc_ids");
        const auto scores = view<float>(semantic, "semantic");
        RankedPools merged;
        {
            const py::gil_scoped_release release;
            merged = merge(of_pool, lists, scores, k);
        }
        return tuple(merged);
    });
}

}  // namespace pyfast::python
