#include "pyfast/hseq_stream.hpp"

#include "arrays.hpp"

namespace pyfast::python {

namespace {

using ColumnArrays = std::tuple<py::array, py::array, py::array>;             // level, parent, subtree_end
using StreamArrays = std::tuple<py::array, py::array, py::array, py::array>;  // order, starts, mask, live
using CursorArrays = std::tuple<py::array, RaggedArrays, RaggedArrays>;       // place, selected, prior

Hierarchy hierarchy(const ColumnArrays& columns) {
    const auto& [level, parent, subtree_end] = columns;
    return {view<std::uint8_t>(level, "level"), integers(parent, "parent"), integers(subtree_end, "subtree_end")};
}

Order order(const py::array& segments, const py::array& starts) {
    return {view<std::int64_t>(segments, "order"), view<std::int64_t>(starts, "order")};
}

Stream stream(std::int64_t size, const StreamArrays& arrays) {
    const auto& [segments, starts, mask, live] = arrays;
    return {size,
            order(segments, starts),
            {view<std::uint8_t>(mask, "tombstones"), view<std::uint64_t>(live, "tombstones")}};
}

Ragged<std::int64_t> lists(const RaggedArrays& arrays, const char* name) {
    return ragged<std::int64_t>(std::get<0>(arrays), std::get<1>(arrays), name);
}

Cursors cursors(const CursorArrays& arrays) {
    const auto& [place, selected, prior] = arrays;
    return {view<std::int64_t>(place, "place"), lists(selected, "selected"), lists(prior, "priors")};
}

Neighbors neighbors_of(const std::string& name) {
    static const std::string names[] = {"children", "parent", "row", "column", "relation"};
    for (std::size_t kind = 0; kind < std::size(names); ++kind) {
        if (names[kind] == name) {
            return static_cast<Neighbors>(kind);
        }
    }
    throw Error("kind: expected children, parent, row, column or relation, got " + name);
}

py::tuple tuple(SegmentLists found) { return py::make_tuple(copy(found.offsets), own(std::move(found.segments))); }

py::tuple tuple(OwnedTombstones found) {
    return py::make_tuple(own(std::move(found.mask)), own(std::move(found.live)));
}

// Calls the core with plain memory, without the GIL.
template <class Work>
auto released(const Work& work) {
    const py::gil_scoped_release release;
    return work();
}

}  // namespace

void bind_hseq_stream(py::module_& m) {
    m.def(
        "hseq_subtree_ends",
        [](const py::array& parent) {
            const auto column = integers(parent, "parent");
            return own(released([&] { return subtree_ends(column); }));
        },
        py::arg("parent"));
    m.def(
        "hseq_check_subtree_ends",
        [](const py::array& parent, const py::array& subtree_end) {
            const auto column = integers(parent, "parent");
            const auto ends = integers(subtree_end, "subtree_end");
            released([&] { check_subtree_ends(column, ends); });
        },
        py::arg("parent"), py::arg("subtree_end"));
    m.def(
        "hseq_order",
        [](const py::array& level, const py::array& priority) {
            const auto column = view<std::uint8_t>(level, "level");
            const auto best_first = view<std::uint8_t>(priority, "priority");
            OwnedOrder found = released([&] { return level_order(column, best_first); });
            return py::make_tuple(own(std::move(found.segments)), copy(found.starts));
        },
        py::arg("level"), py::arg("priority"));
    m.def(
        "hseq_mark_deleted",
        [](const py::array& segments, const py::array& starts, const py::array& mask) {
            const Order places = order(segments, starts);
            const auto deleted = view<std::uint8_t>(mask, "tombstones");
            return tuple(released([&] { return mark_deleted(places, deleted); }));
        },
        py::arg("order"), py::arg("starts"), py::arg("mask"));
    m.def(
        "hseq_delete_segments",
        [](const ColumnArrays& columns, const StreamArrays& arrays, const py::array& segments) {
            const Hierarchy tree = hierarchy(columns);
            const Stream places = stream(static_cast<std::int64_t>(tree.level.size()), arrays);
            const auto deleted = view<std::int64_t>(segments, "segments");
            return tuple(
                released([&] { return delete_segments(tree, places.order, places.tombstones, deleted); }));
        },
        py::arg("columns"), py::arg("stream"), py::arg("segments"));
    m.def(
        "hseq_window",
        [](std::int64_t size, const StreamArrays& arrays, const CursorArrays& batch, std::int64_t width,
           int threads) {
            const Stream places = stream(size, arrays);
            const Cursors asked = cursors(batch);
            return tuple(released([&] { return window(places, asked, width, threads); }));
        },
        py::arg("size"), py::arg("stream"), py::arg("cursors"), py::arg("width"), py::arg("threads"));
    m.def(
        "hseq_refresh",
        [](std::int64_t size, const StreamArrays& arrays, const CursorArrays& batch, const RaggedArrays& chosen,
           std::int64_t past, int threads) {
            const Stream places = stream(size, arrays);
            const Cursors asked = cursors(batch);
            const auto more = lists(chosen, "chosen");
            Refreshed found = released([&] { return refresh(places, asked, more, past, threads); });
            return py::make_tuple(own(std::move(found.place)), tuple(std::move(found.selected)));
        },
        py::arg("size"), py::arg("stream"), py::arg("cursors"), py::arg("chosen"), py::arg("past"),
        py::arg("threads"));
    m.def(
        "hseq_neighbors",
        [](const ColumnArrays& columns, const py::array& mask, const RaggedArrays& segments,
           const RaggedArrays& excluded, const std::string& kind, std::int64_t limit, int threads) {
            const Hierarchy tree = hierarchy(columns);
            const auto deleted = view<std::uint8_t>(mask, "tombstones");
            const auto of = lists(segments, "segments");
            const auto without = lists(excluded, "selected");
            const Neighbors which = neighbors_of(kind);
            return tuple(released([&] { return neighbors(tree, deleted, of, without, which, limit, threads); }));
        },
        py::arg("columns"), py::arg("mask"), py::arg("segments"), py::arg("selected"), py::arg("kind"),
        py::arg("limit"), py::arg("threads"));
}

}  // namespace pyfast::python
