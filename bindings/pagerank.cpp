#include "pyfast/pagerank.hpp"

#include "arrays.hpp"
#include "stoppable.hpp"

namespace pyfast::python {

void bind_pagerank(py::module_& m) {
    // (rank, and for each pool: iterations, whether it converged)
    m.def(
        "pagerank",
        [](const GraphArrays& g, const py::array& personalization, double damping, double tolerance,
           std::int64_t max_iterations, int threads) {
            const Graphs batch = graphs(g);
            const auto shares = view<float>(personalization, "personalization");
            auto [rank, out] = fresh<float>(batch.nodes());
            std::vector<Convergence> convergence;
            const auto numbers = static_cast<double>(batch.nodes() + batch.indices.size());
            stoppable(numbers * static_cast<double>(max_iterations), [&, out = out](Stop stop) {
                convergence = pagerank(batch, shares, {damping, tolerance, max_iterations, threads, stop}, out);
            });
            return std::tuple_cat(std::make_tuple(rank), arrays(convergence));
        },
        py::arg("g"), py::arg("personalization"), py::arg("damping"), py::arg("tolerance"),
        py::arg("max_iterations"), py::arg("threads"));
}

}  // namespace pyfast::python
