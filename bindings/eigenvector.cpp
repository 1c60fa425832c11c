#include "pyfast/eigenvector.hpp"

#include "arrays.hpp"

namespace pyfast::python {

void bind_eigenvector(py::module_& m) {
    m.def(
        "eigenvector",
        [](const GraphArrays& g, double tolerance, std::int64_t max_iterations, int threads) {
            const Graphs batch = graphs(g);
            auto [centrality, out] = fresh<float>(batch.nodes());
            {
                const py::gil_scoped_release release;
                eigenvector(batch, {tolerance, max_iterations, threads}, out);
            }
            return centrality;
        },
        py::arg("g"), py::arg("tolerance"), py::arg("max_iterations"), py::arg("threads"));
}

}  // namespace pyfast::python
