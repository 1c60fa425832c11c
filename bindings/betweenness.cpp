#include "pyfast/betweenness.hpp"

#include "arrays.hpp"
#include "stoppable.hpp"

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
        [](const GraphArrays& g, const std::variant<std::string, py::array>& length,
           const std::optional<std::int64_t>& k, std::uint64_t seed, int threads) {
            const Graphs batch = graphs(g);
            BetweennessOptions options{.k = k, .seed = seed, .threads = threads};
            if (const auto* name = std::get_if<std::string>(&length)) {
                options.length = edge_length(*name);
            } else {
                options.lengths = view<double>(std::get<py::array>(length), "length");
                if (options.lengths.size() != batch.indices.size()) {
                    // an empty array would mean that no lengths are given
                    throw Error("length: must hold one number per edge");
                }
            }
            auto [centrality, out] = fresh<float>(batch.nodes());
            const auto nodes = static_cast<double>(batch.nodes());
            const auto edges = static_cast<double>(batch.indices.size());
            stoppable(nodes * edges, [&, out = out](Stop stop) {
                options.stop = stop;
                betweenness(batch, options, out);
            });
            return centrality;
        },
        py::arg("g"), py::arg("length"), py::arg("k"), py::arg("seed"), py::arg("threads"));
}

}  // namespace pyfast::python
