#include "pyfast/cite.hpp"

#include "arrays.hpp"

namespace pyfast::python {

namespace {

// The columns that ids and uris need.
Segments named(const py::dict& columns) {
    const auto column = [&](const char* name) { return py::array(columns[name]); };
    return {
        .level = view<std::uint8_t>(column("level"), "level"),
        .source = view<std::int32_t>(column("source"), "source"),
        .start = integers(column("start"), "start"),
        .end = integers(column("end"), "end"),
        .triplets = view<std::int64_t>(column("triplets"), "triplets"),
        .ordinal = view<std::int64_t>(column("ordinal"), "ordinal"),
        .hashes = view<std::uint64_t>(column("hashes"), "hashes"),
        .uris = ragged<std::uint8_t>(column("uri_offsets"), column("uris"), "uri_offsets, uris"),
    };
}

}  // namespace

void bind_cite(py::module_& m) {
    m.def(
        "cite",
        [](const py::dict& columns, const py::array& offsets, const py::array& cited, const py::array& scores,
           const std::vector<std::string>& members, const py::array& member_of) {
            const auto column = [&](const char* name) { return py::array(columns[name]); };
            Segments segments = named(columns);
            segments.byte_start = integers(column("byte_start"), "byte_start");
            segments.byte_end = integers(column("byte_end"), "byte_end");
            segments.relation_start = view<std::int64_t>(column("relation_start"), "relation_start");
            segments.tail_start = view<std::int64_t>(column("tail_start"), "tail_start");
            segments.content = view<std::uint8_t>(column("content"), "content");
            const auto lists = ragged<std::int64_t>(offsets, cited, "offsets, segments");
            const auto weights = view<double>(scores, "scores");
            const auto which = view<std::int32_t>(member_of, "member_of");
            Texts texts;
            {
                const py::gil_scoped_release release;
                texts = cite(segments, lists, weights, members, which);
            }
            return list<py::bytes>(texts);
        },
        py::arg("columns"), py::arg("offsets"), py::arg("cited"), py::arg("scores"), py::arg("members"),
        py::arg("member_of"));
    m.def(
        "list_segments",
        [](const py::dict& columns, const py::array& offsets, const py::array& listed,
           const std::vector<std::string>& names, const py::array& scores) {
            const Segments segments = named(columns);
            const auto lists = ragged<std::int64_t>(offsets, listed, "offsets, segments");
            const auto numbers = view<float>(scores, "scores");
            Texts texts;
            {
                const py::gil_scoped_release release;
                texts = list_segments(segments, lists, names, numbers);
            }
            return list<py::bytes>(texts);
        },
        py::arg("columns"), py::arg("offsets"), py::arg("listed"), py::arg("names"), py::arg("scores"));
    m.def(
        "segment_ids",
        [](const py::array& level, const py::array& source, const py::array& start, const py::array& end,
           const py::array& triplets, const py::array& ordinal, const py::array& hashes, const py::array& which) {
            const Segments segments{
                .level = view<std::uint8_t>(level, "level"),
                .source = view<std::int32_t>(source, "source"),
                .start = integers(start, "start"),
                .end = integers(end, "end"),
                .triplets = view<std::int64_t>(triplets, "triplets"),
                .ordinal = view<std::int64_t>(ordinal, "ordinal"),
                .hashes = view<std::uint64_t>(hashes, "hashes"),
            };
            return copy(segment_ids(segments, view<std::int64_t>(which, "which")));
        },
        py::arg("level"), py::arg("source"), py::arg("start"), py::arg("end"), py::arg("triplets"),
        py::arg("ordinal"), py::arg("hashes"), py::arg("which"));
}

}  // namespace pyfast::python
