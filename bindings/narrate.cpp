#include "pyfast/narrate.hpp"

#include "arrays.hpp"

namespace pyfast::python {

void bind_narrate(py::module_& m) {
    m.def(
        "narrate",
        [](const py::array& line_offsets, const py::array& text, const py::array& pool_offsets,
           const py::array& doc_ids, std::int64_t characters) {
            const auto lines = ragged<std::uint8_t>(line_offsets, text, "line_offsets, text");
            const Pools pools = ragged(pool_offsets, doc_ids, "pool_offsets, doc_ids");
            Texts narratives;
            {
                const py::gil_scoped_release release;
                narratives = narrate(lines, pools, characters);
            }
            return list<py::str>(narratives);
        },
        py::arg("line_offsets"), py::arg("text"), py::arg("pool_offsets"), py::arg("doc_ids"),
        py::arg("characters"));
}

}  // namespace pyfast::python
