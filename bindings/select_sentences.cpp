#include "pyfast/select_sentences.hpp"

#include "arrays.hpp"

namespace pyfast::python {

void bind_select_sentences(py::module_& m) {
    m.def(
        "select_sentences",
        [](const ForwardArrays& x, const py::array& pool_offsets, const py::array& sentence_offsets,
           const py::array& semantic, const py::array& lengths, const py::array& dependent,
           const py::array& budgets, int threads) {
            const Forward index = forward(x);
            const PoolSentences pools{view<std::int64_t>(pool_offsets, "pool_offsets"),
                                      view<std::int64_t>(sentence_offsets, "sentence_offsets"),
                                      view<float>(semantic, "semantic"), view<std::int64_t>(lengths, "lengths"),
                                      view<std::uint8_t>(dependent, "dependent")};
            const auto most = view<std::int64_t>(budgets, "budgets");
            auto [kept, out] = fresh<std::uint8_t>(pools.lengths.size());
            {
                const py::gil_scoped_release release;
                select_sentences(index, pools, most, threads, out);
            }
            return kept;
        },
        py::arg("X"), py::arg("pool_offsets"), py::arg("sentence_offsets"), py::arg("semantic"),
        py::arg("lengths"), py::arg("dependent"), py::arg("budgets"), py::arg("threads"));
}

}  // namespace pyfast::python
