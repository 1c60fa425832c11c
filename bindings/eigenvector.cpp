#include "pyfast/eigenvector.hpp"

#include "arrays.hpp"
#include "stoppable.hpp"

namespace pyfast::python {

void bind_eigenvector(py::module_& m) {
    // (centrality, and for each pool: iterations, whether it converged)
    m.def(
        "eigenvector",
        [](const GraphArrays& g, double tolerance, std::int64_t max_iterations, int threads) {
            const Graphs batch = graphs(g);
            auto [centrality, out] = fresh<float>(batch.nodes());
            std::vector<Convergence> convergence;
            const auto numbers = static_cast<double>(batch.nodes() + batch.indices.size());
            stoppable(numbers * static_cast<double>(max_iterations), [&, out = out](Stop stop) {
                convergence = eigenvector(batch, {tolerance, max_iterations, threads, stop}, out);
            });
            return std::tuple_cat(std::make_tuple(centrality), arrays(convergence));
        },
        py::arg("g"), py::arg("tolerance"), py::arg("max_iterations"), py::arg("threads"));
}

}  // namespace pyfast::python
