#include "pyfast/bridge_rank.hpp"

#include "arrays.hpp"

namespace pyfast::python {

void bind_bridge_rank(py::module_& m) {
    m.def(
        "bridge_rank",
        [](const ForwardArrays& x, const py::array& pool_offsets, const py::array& doc_ids,
           const py::array& semantic, const py::array& question_offsets, const py::array& question_ids,
           std::int64_t edges, float damping, float sharpness, float mix, int threads) {
            const Forward index = forward(x);
            const Pools pools = ragged(pool_offsets, doc_ids, "pool_offsets, doc_ids");
            const auto scores = view<float>(semantic, "semantic");
            const Ragged<std::int32_t> questions = ragged(question_offsets, question_ids, "question_terms");
            auto [score, out] = fresh<float>(scores.size());
            {
                const py::gil_scoped_release release;
                bridge_rank(index, pools, scores, questions, {edges, damping, sharpness, mix, threads}, out);
            }
            return score;
        },
        py::arg("X"), py::arg("pool_offsets"), py::arg("doc_ids"), py::arg("semantic"),
        py::arg("question_offsets"), py::arg("question_ids"), py::arg("edges"), py::arg("damping"),
        py::arg("sharpness"), py::arg("mix"), py::arg("threads"));
}

}  // namespace pyfast::python
