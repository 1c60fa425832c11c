#include "pyfast/betweenness.hpp"

#include "arrays.hpp"

namespace pyfast::python {

namespace {

EdgeLength edge_length(const std::string& name) {
    if (name == "inverse") {
        return EdgeLength::inverse;
    }
    if (name == "hops") {
        return EdgeLength::hops;
    }
    throw Error("length: '" + name + "' is none of 'inverse', 'hops'");
}

}  // namespace

void bind_betweenness(py::module_& m) {
    m.def(
        "betweenness",
        [](const GraphArrays& g, const std::string& length, int threads) {
            const Graphs batch = graphs(g);
            const EdgeLength kind = edge_length(length);
            auto [centrality, out] = fresh<float>(batch.nodes());
            {
                const py::gil_scoped_release release;
                betweenness(batch, kind, threads, out);
            }
            return centrality;
        },
        py::arg("g"), py::arg("length"), py::arg("threads"));
}

}  // namespace pyfast::python
