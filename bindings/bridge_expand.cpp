#include "pyfast/bridge_expand.hpp"

#include "arrays.hpp"

namespace pyfast::python {

void bind_bridge_expand(py::module_& m) {
    m.def(
        "bridge_expand",
        [](const ForwardArrays& x, const ForwardArrays& xt, const py::array& seed_offsets,
           const py::array& seed_ids, const py::array& question_offsets, const py::array& question_ids,
           std::int64_t k, std::optional<float> largest_norm, std::optional<std::int64_t> max_entries,
           int threads) {
            const Forward index = forward(x);
            const Forward transposed = forward(xt);
            const Pools seeds = ragged(seed_offsets, seed_ids, "seed_offsets, seed_ids");
            const auto questions = ragged(question_offsets, question_ids, "question_terms");
            BridgeExpandOptions options{.k = k, .largest_norm = largest_norm, .threads = threads};
            options.max_entries = max_entries.value_or(options.max_entries);
            RankedPools found;
            {
                const py::gil_scoped_release release;
                found = bridge_expand(index, transposed, seeds, questions, options);
            }
            return tuple(found);
        },
        py::arg("X"), py::arg("XT"), py::arg("seed_offsets"), py::arg("seed_ids"), py::arg("question_offsets"),
        py::arg("question_ids"), py::arg("k"), py::arg("largest_norm"), py::arg("max_entries"),
        py::arg("threads"));
}

}  // namespace pyfast::python
