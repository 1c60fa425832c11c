#include "pyfast/pagerank.hpp"

#include "arrays.hpp"

namespace pyfast::python {

void bind_pagerank(py::module_& m) {
    m.def(
        "pagerank",
        [](const GraphArrays& g, const py::array& personalization, double damping, double tolerance,
           std::int64_t max_iterations, int threads) {
            const Graphs batch = graphs(g);
            const auto shares = view<float>(personalization, "personalization");
            auto [rank, out] = fresh<float>(batch.nodes());
            {
                const py::gil_scoped_release release;
                pagerank(batch, shares, {damping, tolerance, max_iterations, threads}, out);
            }
            return rank;
        },
        py::arg("g"), py::arg("personalization"), py::arg("damping"), py::arg("tolerance"),
        py::arg("max_iterations"), py::arg("threads"));
}

}  // namespace pyfast::python
